package shardway.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/**
 * Opens Kinesis records with the KCL's own code: one a line on standard input, its user records on standard output.
 *
 * <p>In: {@code data TAB partition key TAB first hash key TAB last hash key}. Data and key are base64, the hash keys
 * decimal: the range of the shard that the record was read from, both ends inclusive.
 *
 * <p>Out: for each user record {@code data TAB partition key TAB explicit hash key TAB sub-sequence number TAB
 * aggregated}, the explicit hash key decimal or {@code -}, {@code aggregated} {@code true} or {@code false}; then one
 * empty line for each line that came in, also when the KCL handed out nothing.
 */
public final class Deaggregate {
    private Deaggregate() {}

    public static void main(String[] arguments) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        try (var out = new PrintStream(System.out, false, StandardCharsets.US_ASCII)) {
            var kcl = new AggregatorUtil();
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] fields = line.split("\t", -1);
                if (fields.length != 4) {
                    throw new IOException("a line has four fields, not " + fields.length);
                }
                var record = KinesisClientRecord.builder()
                        .data(ByteBuffer.wrap(Base64.getDecoder().decode(fields[0])))
                        .partitionKey(new String(Base64.getDecoder().decode(fields[1]), StandardCharsets.UTF_8))
                        .sequenceNumber("1")
                        .build();
                var opened = kcl.deaggregate(List.of(record), new BigInteger(fields[2]), new BigInteger(fields[3]));
                for (KinesisClientRecord one : opened) {
                    out.print(describe(one));
                    out.print('\n');
                }
                out.print('\n');
            }
        }
    }

    private static String describe(KinesisClientRecord record) {
        byte[] data = new byte[record.data().remaining()];
        record.data().duplicate().get(data);
        var base64 = Base64.getEncoder();
        return String.join(
                "\t",
                base64.encodeToString(data),
                base64.encodeToString(record.partitionKey().getBytes(StandardCharsets.UTF_8)),
                record.explicitHashKey() == null ? "-" : record.explicitHashKey(),
                Long.toString(record.subSequenceNumber()),
                Boolean.toString(record.aggregated()));
    }
}
