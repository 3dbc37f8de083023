package interop;

import java.util.LinkedHashMap;
import java.util.Map;

/** Named cases, run in the order they were added; a failing one does not stop the others. */
final class Suite {
    /** Returns what is worth knowing about a case that passed, or throws. */
    interface Body {
        String run(Peer peer) throws Exception;
    }

    private final Map<String, Body> cases = new LinkedHashMap<>();

    Suite add(String name, Body body) {
        cases.put(name, body);
        return this;
    }

    void run(Peer peer) {
        cases.forEach((name, body) -> {
            long started = System.nanoTime();
            String result = "pass";
            String detail;
            try {
                detail = body.run(peer);
            } catch (Exception | AssertionError failure) {
                result = "FAIL";
                detail = failure.toString();
            }
            long ms = (System.nanoTime() - started) / 1_000_000;
            String line = String.join("\t", "case", result, Long.toString(ms), name, detail.replaceAll("\\s+", " "));
            System.out.println(line);
        });
    }
}
