package interop;

import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends all the time with one DefaultMQProducer and its default settings, and says how each send ended.
 *
 * Usage: SteadyProducer NAMESERVER TOPIC THREADS. Bodies are "plain 1", "plain 2" and so on. Each send is one line
 * of the standard output, with the time of the system's clock that never goes back, in nanoseconds:
 *
 *   NANOSECONDS STATUS BODY              answered; STATUS is a name of SendStatus
 *   NANOSECONDS failed REASON BODY       given up, after the client's own retries
 *
 * The end of the standard input ends the sends; the program waits for those that are under way.
 */
public final class SteadyProducer {
    private static final long PAUSE_MS = 5;
    private static final long PAUSE_NOT_OK_MS = 20;

    private final DefaultMQProducer producer = new DefaultMQProducer("rounds-java");
    private final AtomicLong numbers = new AtomicLong();
    private final String topic;
    private final PrintStream lines;
    private volatile boolean isOver;

    private SteadyProducer(String nameserver, String topic, PrintStream lines) {
        this.topic = topic;
        this.lines = lines;
        producer.setNamesrvAddr(nameserver);
    }

    public static void main(String[] args) throws IOException, InterruptedException, MQClientException {
        PrintStream lines = System.out;
        // Whatever the stock parts print must not come between the lines.
        System.setOut(System.err);
        SteadyProducer steady = new SteadyProducer(args[0], args[1], lines);
        steady.producer.start();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            Thread thread = new Thread(steady::sendAllTheTime, "sender-" + i);
            thread.start();
            threads.add(thread);
        }
        while (System.in.read() >= 0) {
            // Only the end of it says something.
        }
        steady.isOver = true;
        for (Thread thread : threads) {
            thread.join();
        }
        steady.producer.shutdown();
        lines.flush();
        Runtime.getRuntime().halt(0);
    }

    private void sendAllTheTime() {
        try {
            while (!isOver) {
                Thread.sleep(send("plain " + numbers.incrementAndGet()) ? PAUSE_MS : PAUSE_NOT_OK_MS);
            }
        } catch (InterruptedException stopped) {
            // Nobody does that but the end of the program.
        }
    }

    /** Send one message; tell whether it was answered SEND_OK. */
    private boolean send(String body) throws InterruptedException {
        Message message = new Message(topic, body.getBytes(StandardCharsets.US_ASCII));
        String outcome;
        boolean isOk = false;
        try {
            SendResult result = producer.send(message);
            isOk = result.getSendStatus() == SendStatus.SEND_OK;
            outcome = result.getSendStatus().name();
        } catch (InterruptedException stopped) {
            throw stopped;
        } catch (Exception failure) {
            outcome = "failed " + reason(failure);
        }
        say(System.nanoTime() + " " + outcome + " " + body + "\n");
        return isOk;
    }

    private void say(String line) {
        byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
        // One write for a line: those of other threads do not come between.
        lines.write(bytes, 0, bytes.length);
        lines.flush();
    }

    /** What was thrown and what had caused it, with the codes of brokers, as one word. */
    private static String reason(Throwable failure) {
        StringBuilder reason = new StringBuilder();
        for (Throwable each = failure; each != null; each = each.getCause()) {
            reason.append(reason.length() == 0 ? "" : "<").append(each.getClass().getSimpleName());
            if (each instanceof MQBrokerException refused) {
                reason.append('(').append(refused.getResponseCode()).append(')');
            }
        }
        return reason.toString();
    }
}
