package interop;

import static org.apache.rocketmq.common.protocol.RequestCode.GET_CONSUMER_RUNNING_INFO;
import static org.apache.rocketmq.common.protocol.RequestCode.HEART_BEAT;
import static org.apache.rocketmq.common.protocol.RequestCode.NOTIFY_CONSUMER_IDS_CHANGED;

import io.netty.channel.ChannelHandlerContext;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.ResponseCode;
import org.apache.rocketmq.common.protocol.body.ConsumeStatus;
import org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.common.protocol.body.ProcessQueueInfo;
import org.apache.rocketmq.common.protocol.header.GetConsumerRunningInfoRequestHeader;
import org.apache.rocketmq.common.protocol.header.NotifyConsumerIdsChangedRequestHeader;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.common.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.common.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Requests of the server to the client, on the client's connection.
 *
 * The client starts each of them: a heartbeat makes the server notify it, and a question about
 * running info comes straight back as the server's question, as a broker hands on what mqadmin
 * asks.
 */
final class CallbackCases {
    private static final BlockingQueue<String> NOTIFIED = new LinkedBlockingQueue<>();

    static Suite suite() {
        return new Suite()
            .add("one-way notification before the heartbeat's answer", CallbackCases::notified)
            .add("request answered by the client's processor", CallbackCases::asked)
            .add("200 requests in both directions at once", CallbackCases::askedOften)
            .add("client's processor throws: the server gets 1", CallbackCases::processorThrows)
            .add("client lacks the code: the server gets 3", CallbackCases::unknownToClient)
            .add("client does not answer: the server's call times out", CallbackCases::silent);
    }

    private static String notified(Peer peer) throws Exception {
        peer.client.registerProcessor(NOTIFY_CONSUMER_IDS_CHANGED, processor(request -> {
            NOTIFIED.add(Peer.header(request, NotifyConsumerIdsChangedRequestHeader.class).getConsumerGroup());
            Expect.that("a one-way request", request.isOnewayRPC());
            return null;
        }), null);
        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("10.0.0.1@4711");
        ProducerData producer = new ProducerData();
        producer.setGroupName("producers");
        heartbeat.setProducerDataSet(Set.of(producer));
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("consumers");
        consumer.setSubscriptionDataSet(Set.of(new SubscriptionData("topic", "a || b")));
        heartbeat.setConsumerDataSet(Set.of(consumer));
        RemotingCommand answer = peer.call(HEART_BEAT, null, heartbeat.encode());
        Peer.succeeded(answer);
        Expect.equal("what the server read", "10.0.0.1@4711 producers consumers topic", answer.getRemark());
        Expect.equal("group", "consumers", NOTIFIED.poll(1, TimeUnit.SECONDS));
        return "";
    }

    private static String asked(Peer peer) throws Exception {
        answerWith(peer, request -> {
            GetConsumerRunningInfoRequestHeader header = headerOf(request);
            Expect.equal("jstackEnable", true, header.isJstackEnable());
            RemotingCommand answer = RemotingCommand.createResponseCommand(0, null);
            answer.setBody(runningInfo(header.getClientId()).encode());
            return answer;
        });
        RemotingCommand answer = peer.call(GET_CONSUMER_RUNNING_INFO, question("client"), null);
        Peer.succeeded(answer);
        ConsumerRunningInfo info = ConsumerRunningInfo.decode(answer.getBody(), ConsumerRunningInfo.class);
        Expect.equal("running info", runningInfo("client").toJson(), info.toJson());
        return "body went client, server, client";
    }

    private static String askedOften(Peer peer) throws Exception {
        List<CompletableFuture<RemotingCommand>> answers = new ArrayList<>();
        for (int number = 0; number < 200; number++) {
            answers.add(peer.start(GET_CONSUMER_RUNNING_INFO, question("client " + number), null, Peer.TIMEOUT_MS));
        }
        for (int number = 0; number < answers.size(); number++) {
            RemotingCommand answer = Peer.await(answers.get(number));
            Peer.succeeded(answer);
            ConsumerRunningInfo info = ConsumerRunningInfo.decode(answer.getBody(), ConsumerRunningInfo.class);
            Expect.equal("client id", "client " + number, info.getProperties().getProperty("id"));
        }
        return "";
    }

    private static String processorThrows(Peer peer) throws Exception {
        answerWith(peer, request -> {
            throw new IllegalStateException("broken on purpose");
        });
        RemotingCommand answer = peer.call(GET_CONSUMER_RUNNING_INFO, question("throws"), null);
        Expect.equal("code", ResponseCode.SYSTEM_ERROR, answer.getCode());
        Expect.that("the client's words in: " + answer.getRemark(), answer.getRemark().contains("broken on purpose"));
        return "remark: " + answer.getRemark();
    }

    private static String unknownToClient(Peer peer) throws Exception {
        RemotingCommand answer = peer.call(GET_CONSUMER_RUNNING_INFO, question("other code"), null);
        Expect.equal("code", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, answer.getCode());
        return "remark: " + answer.getRemark();
    }

    private static String silent(Peer peer) throws Exception {
        // A processor that returns nothing is the stock way of not answering.
        answerWith(peer, request -> null);
        RemotingCommand request = RemotingCommand.createRequestCommand(GET_CONSUMER_RUNNING_INFO, question("silent"));
        RemotingCommand answer = peer.call(request, 3_000);
        Expect.equal("code", ResponseCode.CONSUME_MSG_TIMEOUT, answer.getCode());
        return "remark: " + answer.getRemark();
    }

    private static GetConsumerRunningInfoRequestHeader question(String clientId) {
        GetConsumerRunningInfoRequestHeader header = new GetConsumerRunningInfoRequestHeader();
        header.setConsumerGroup("consumers");
        header.setClientId(clientId);
        header.setJstackEnable(true);
        return header;
    }

    private static GetConsumerRunningInfoRequestHeader headerOf(RemotingCommand request) throws Exception {
        return Peer.header(request, GetConsumerRunningInfoRequestHeader.class);
    }

    private static ConsumerRunningInfo runningInfo(String clientId) {
        ConsumerRunningInfo info = new ConsumerRunningInfo();
        info.getProperties().setProperty("id", clientId);
        info.getSubscriptionSet().add(new SubscriptionData("topic", "*"));
        info.getSubscriptionSet().first().setSubVersion(1);
        for (int queue = 0; queue < 4; queue++) {
            ProcessQueueInfo messages = new ProcessQueueInfo();
            messages.setCommitOffset(queue);
            messages.setLocked(queue % 2 == 0);
            info.getMqTable().put(new MessageQueue("topic", "broker-a", queue), messages);
        }
        ConsumeStatus status = new ConsumeStatus();
        status.setPullTPS(1234.5);
        info.getStatusTable().put("topic", status);
        info.setJstack("thread \"main\"\n\tat somewhere");
        return info;
    }

    private interface Answering {
        RemotingCommand answer(RemotingCommand request) throws Exception;
    }

    private static void answerWith(Peer peer, Answering answering) {
        peer.client.registerProcessor(GET_CONSUMER_RUNNING_INFO, processor(answering), null);
    }

    private static NettyRequestProcessor processor(Answering answering) {
        return new NettyRequestProcessor() {
            @Override
            public RemotingCommand processRequest(ChannelHandlerContext context, RemotingCommand request)
                throws Exception {
                return answering.answer(request);
            }

            @Override
            public boolean rejectRequest() {
                return false;
            }
        };
    }

    private CallbackCases() {
    }
}
