package shardway.interop;

import java.nio.charset.StandardCharsets;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** Prints what it is told of a shard, and checkpoints what it was given, from time to time and at each end. */
final class Processor implements ShardRecordProcessor {
    private final Lines out;
    private final int tenure;
    private final long checkpointMs;
    private String shard = "";
    private long checkpointedMs;

    /** {@code tenure}: a number of its own in this process. */
    Processor(Lines out, int tenure, long checkpointMs) {
        this.out = out;
        this.tenure = tenure;
        this.checkpointMs = checkpointMs;
    }

    @Override
    public void initialize(InitializationInput input) {
        shard = input.shardId();
        out.print("start", "shard", shard, "tenure", tenure, "from", input.extendedSequenceNumber().sequenceNumber());
    }

    /** {@code records} of the line: sequence number, sub-sequence number, arrival in epoch ms, and the data. */
    @Override
    public void processRecords(ProcessRecordsInput input) {
        if (input.records().isEmpty()) {
            return;
        }
        var line = new StringBuilder("{\"at_ms\":").append(System.currentTimeMillis());
        Lines.add(line, "event", "records");
        Lines.add(line, "shard", shard);
        Lines.add(line, "tenure", tenure);
        line.append(",\"records\":[");
        for (KinesisClientRecord record : input.records()) {
            line.append(line.charAt(line.length() - 1) == '[' ? "[\"" : ",[\"")
                    .append(record.sequenceNumber())
                    .append("\",")
                    .append(record.subSequenceNumber())
                    .append(',')
                    .append(record.approximateArrivalTimestamp().toEpochMilli())
                    .append(',')
                    .append(StandardCharsets.US_ASCII.decode(record.data()))
                    .append(']');
        }
        out.write(line.append("]}").toString());
        if (System.currentTimeMillis() - checkpointedMs >= checkpointMs) {
            checkpoint(input.checkpointer());
        }
    }

    @Override
    public void leaseLost(LeaseLostInput input) {
        out.print("lost", "shard", shard, "tenure", tenure);
    }

    @Override
    public void shardEnded(ShardEndedInput input) {
        out.print("ended", "shard", shard, "tenure", tenure);
        checkpoint(input.checkpointer());
    }

    @Override
    public void shutdownRequested(ShutdownRequestedInput input) {
        out.print("shutdown requested", "shard", shard, "tenure", tenure);
        checkpoint(input.checkpointer());
    }

    private void checkpoint(RecordProcessorCheckpointer checkpointer) {
        try {
            checkpointer.checkpoint();
            checkpointedMs = System.currentTimeMillis();
            out.print("checkpoint", "shard", shard, "tenure", tenure);
        } catch (Exception fault) {
            // A lease that was lost: the library says so in its next call.
            String error = fault.getClass().getSimpleName();
            out.print("checkpoint failed", "shard", shard, "tenure", tenure, "error", error);
        }
    }
}
