package bench;

import com.alibaba.fastjson.JSONObject;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The consumers of the stock client, each from the first message of a topic on. */
@SuppressWarnings("deprecation")
final class Consuming {
    private Consuming() {
    }

    /** The time runs from the first message that a listener is given. */
    static Meter push(JSONObject load) throws Exception {
        Meter meter = new Meter();
        long wanted = load.getLongValue("messages");
        AtomicBoolean begun = new AtomicBoolean();
        AtomicLong count = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        CountDownLatch first = new CountDownLatch(1);
        CountDownLatch all = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(load.getString("group"));
        consumer.setNamesrvAddr(load.getString("nameserver"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(load.getIntValue("batch"));
        consumer.setConsumeMessageBatchMaxSize(load.getIntValue("batch"));
        consumer.subscribe(load.getString("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            if (!begun.get() && begun.compareAndSet(false, true)) {
                meter.start();
                first.countDown();
            }
            bytes.addAndGet(bytesOf(messages));
            if (count.addAndGet(messages.size()) >= wanted) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            if (!first.await(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("no message came");
            }
            all.await((long) (load.getDoubleValue("seconds") * 1e3), TimeUnit.MILLISECONDS);
            meter.stop(count.get());
        } finally {
            consumer.shutdown();
        }
        return meter;
    }

    static Meter litePull(JSONObject load) throws Exception {
        Meter meter = new Meter();
        long wanted = load.getLongValue("messages");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(load.getString("group"));
        consumer.setNamesrvAddr(load.getString("nameserver"));
        consumer.setPullBatchSize(load.getIntValue("batch"));
        consumer.start();
        try {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(load.getString("topic"));
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seekToBegin(queue);
            }
            meter.start();
            long end = System.nanoTime() + (long) (load.getDoubleValue("seconds") * 1e9);
            long count = 0;
            long bytes = 0;
            while (count < wanted && System.nanoTime() < end) {
                List<MessageExt> messages = consumer.poll();
                count += messages.size();
                bytes += bytesOf(messages);
            }
            meter.stop(count);
            check(count, bytes);
        } finally {
            consumer.shutdown();
        }
        return meter;
    }

    /** One pull after the other, queue by queue. */
    static Meter range(JSONObject load) throws Exception {
        Meter meter = new Meter();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(load.getString("group"));
        consumer.setNamesrvAddr(load.getString("nameserver"));
        consumer.start();
        try {
            Collection<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(load.getString("topic"));
            meter.start();
            long end = System.nanoTime() + (long) (load.getDoubleValue("seconds") * 1e9);
            long count = 0;
            long bytes = 0;
            for (MessageQueue queue : queues) {
                long offset = 0;
                while (System.nanoTime() < end) {
                    PullResult result = consumer.pull(queue, "*", offset, load.getIntValue("batch"));
                    if (result.getPullStatus() != PullStatus.FOUND) {
                        break;
                    }
                    count += result.getMsgFoundList().size();
                    bytes += bytesOf(result.getMsgFoundList());
                    offset = result.getNextBeginOffset();
                }
            }
            meter.stop(count);
            check(count, bytes);
        } finally {
            consumer.shutdown();
        }
        return meter;
    }

    private static long bytesOf(List<MessageExt> messages) {
        long bytes = 0;
        for (MessageExt message : messages) {
            bytes += message.getBody().length;
        }
        return bytes;
    }

    private static void check(long count, long bytes) {
        if (count == 0 || bytes < count) {
            throw new IllegalStateException(count + " messages of " + bytes + " bytes came");
        }
    }
}
