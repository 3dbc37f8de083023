package bench;

import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** DefaultMQProducer: from so many threads, without waiting, and in batches. */
final class Sending {
    private Sending() {
    }

    private interface Send {
        /** Send once, and return how many messages that was. */
        int once() throws Exception;
    }

    static Meter each(JSONObject load) throws Exception {
        DefaultMQProducer producer = start(load);
        try {
            return inThreads(load, () -> {
                check(producer.send(message(load)));
                return 1;
            });
        } finally {
            producer.shutdown();
        }
    }

    static Meter batches(JSONObject load) throws Exception {
        DefaultMQProducer producer = start(load);
        int size = load.getIntValue("batch");
        try {
            return inThreads(load, () -> {
                List<Message> messages = new ArrayList<>(size);
                for (int i = 0; i < size; i++) {
                    messages.add(message(load));
                }
                check(producer.send(messages));
                return size;
            });
        } finally {
            producer.shutdown();
        }
    }

    static Meter pipelined(JSONObject load) throws Exception {
        DefaultMQProducer producer = start(load);
        Meter meter = new Meter();
        int atOnce = load.getIntValue("at_once");
        // The client itself throws when 50,000 sends wait for a thread of its own.
        Semaphore room = new Semaphore(atOnce);
        try {
            meter.start();
            long end = System.nanoTime() + (long) (load.getDoubleValue("seconds") * 1e9);
            while (System.nanoTime() < end) {
                room.acquire();
                long since = System.nanoTime();
                producer.send(message(load), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        meter.done(since);
                        room.release();
                    }

                    @Override
                    public void onException(Throwable failure) {
                        meter.failed(failure);
                        room.release();
                    }
                });
            }
            room.acquire(atOnce);
            meter.stop(meter.requests());
            return meter;
        } finally {
            producer.shutdown();
        }
    }

    private static Meter inThreads(JSONObject load, Send send) throws Exception {
        Meter meter = new Meter();
        int count = load.getIntValue("at_once");
        CountDownLatch ready = new CountDownLatch(count);
        CountDownLatch begin = new CountDownLatch(1);
        long[] sent = new long[count];
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Thread thread = new Thread(() -> {
                ready.countDown();
                try {
                    begin.await();
                    long end = System.nanoTime() + (long) (load.getDoubleValue("seconds") * 1e9);
                    for (long since = System.nanoTime(); since < end; since = System.nanoTime()) {
                        sent[number] += send.once();
                        meter.done(since);
                    }
                } catch (Exception failure) {
                    meter.failed(failure);
                }
            });
            thread.start();
            threads.add(thread);
        }
        ready.await();
        meter.start();
        begin.countDown();
        long messages = 0;
        for (int i = 0; i < count; i++) {
            threads.get(i).join();
            messages += sent[i];
        }
        meter.stop(messages);
        return meter;
    }

    private static DefaultMQProducer start(JSONObject load) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(load.getString("group"));
        producer.setNamesrvAddr(load.getString("nameserver"));
        producer.start();
        // Route and connection are there before the time runs.
        check(producer.send(message(load)));
        return producer;
    }

    private static Message message(JSONObject load) {
        return new Message(load.getString("topic"), Bodies.of(load.getIntValue("body_bytes")));
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }
}
