package shardway.interop;

import java.io.PrintStream;

/** JSON lines on standard output: {@code at_ms}, {@code event}, and what else there is to say. */
final class Lines {
    private final PrintStream out = System.out;

    /** {@code more}: names and values, in turn; a value is a number, or a text without characters to escape. */
    void print(String event, Object... more) {
        var line = new StringBuilder("{\"at_ms\":").append(System.currentTimeMillis());
        add(line, "event", event);
        for (int at = 0; at < more.length; at += 2) {
            add(line, more[at].toString(), more[at + 1]);
        }
        write(line.append('}').toString());
    }

    /** A line that is JSON already. */
    synchronized void write(String line) {
        out.println(line);
        out.flush();
    }

    static void add(StringBuilder line, String name, Object value) {
        line.append(",\"").append(name).append("\":");
        if (value instanceof Number) {
            line.append(value);
        } else {
            line.append('"').append(String.valueOf(value).replaceAll("[\\\\\"\\p{Cntrl}]", " ")).append('"');
        }
    }
}
