package interop;

import java.util.List;
import java.util.NoSuchElementException;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/** The stock consumer and producer, and where their queues are. */
@SuppressWarnings("deprecation")
final class Peer implements AutoCloseable {
    private static final long ROUTE_TIMEOUT_MS = 30_000;
    private static final long ROUTE_INTERVAL_MS = 100;

    final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-readers");
    final DefaultMQProducer producer = new DefaultMQProducer("interop-writers");

    Peer(String nameserver) throws MQClientException {
        consumer.setNamesrvAddr(nameserver);
        consumer.start();
        producer.setNamesrvAddr(nameserver);
        producer.start();
    }

    MQAdminImpl admin() {
        return consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQAdminImpl();
    }

    /** Returns the queues of a topic; a broker that has just started is yet to register them. */
    List<MessageQueue> queues(String topic) throws Exception {
        long deadline = System.currentTimeMillis() + ROUTE_TIMEOUT_MS;
        while (true) {
            try {
                return consumer.fetchSubscribeMessageQueues(topic).stream().sorted().toList();
            } catch (MQClientException noRoute) {
                if (System.currentTimeMillis() > deadline) {
                    throw noRoute;
                }
                Thread.sleep(ROUTE_INTERVAL_MS);
            }
        }
    }

    MessageQueue queue(String topic, int queueId) throws Exception {
        for (MessageQueue queue : queues(topic)) {
            if (queue.getQueueId() == queueId) {
                return queue;
            }
        }
        throw new NoSuchElementException("no queue " + queueId + " of " + topic);
    }

    @Override
    public void close() {
        producer.shutdown();
        consumer.shutdown();
    }
}
