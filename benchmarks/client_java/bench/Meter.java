package bench;

import com.alibaba.fastjson.JSONObject;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** Counts messages, and takes the time and the processor time of this process meanwhile. */
final class Meter {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final int LATENCIES_MAX = 1 << 22;

    private final long[] latencies = new long[LATENCIES_MAX];
    private final AtomicInteger taken = new AtomicInteger();
    private final Map<String, Integer> failures = new ConcurrentHashMap<>();
    private long startedNs;
    private long startedCpuNs;
    private long tookNs;
    private long tookCpuNs;
    private long messages;

    void start() {
        startedCpuNs = SYSTEM.getProcessCpuTime();
        startedNs = System.nanoTime();
    }

    void stop(long count) {
        tookNs = System.nanoTime() - startedNs;
        tookCpuNs = SYSTEM.getProcessCpuTime() - startedCpuNs;
        messages = count;
    }

    /** One request is done that was made at that time. */
    void done(long sinceNs) {
        int at = taken.getAndIncrement();
        if (at < LATENCIES_MAX) {
            latencies[at] = System.nanoTime() - sinceNs;
        }
    }

    int requests() {
        return taken.get();
    }

    void failed(Throwable failure) {
        failures.merge(failure.toString(), 1, Integer::sum);
    }

    JSONObject answer() {
        JSONObject figures = new JSONObject();
        figures.put("messages", messages);
        figures.put("messages_per_s", messages * 1e9 / tookNs);
        figures.put("cpu_us", tookCpuNs / 1e3 / Math.max(1, messages));
        figures.put("client_cpu_share", (double) tookCpuNs / tookNs);
        long[] ordered = Arrays.copyOf(latencies, Math.min(taken.get(), LATENCIES_MAX));
        if (ordered.length > 0) {
            Arrays.sort(ordered);
            figures.put("p50_ms", percentile(ordered, 0.5) / 1e6);
            figures.put("p99_ms", percentile(ordered, 0.99) / 1e6);
            figures.put("max_ms", ordered[ordered.length - 1] / 1e6);
        }
        JSONObject answer = new JSONObject();
        answer.put("figures", figures);
        answer.put("failures", failures);
        return answer;
    }

    private static double percentile(long[] ordered, double share) {
        return ordered[Math.max(0, (int) Math.ceil(ordered.length * share) - 1)];
    }
}
