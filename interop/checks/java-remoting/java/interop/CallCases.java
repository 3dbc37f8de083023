package interop;

import static org.apache.rocketmq.common.protocol.RequestCode.GET_MAX_OFFSET;
import static org.apache.rocketmq.common.protocol.RequestCode.GET_MIN_OFFSET;
import static org.apache.rocketmq.common.protocol.RequestCode.GET_ROUTEINFO_BY_TOPIC;
import static org.apache.rocketmq.common.protocol.RequestCode.PULL_MESSAGE;
import static org.apache.rocketmq.common.protocol.RequestCode.QUERY_CONSUMER_OFFSET;
import static org.apache.rocketmq.common.protocol.RequestCode.QUERY_MESSAGE;
import static org.apache.rocketmq.common.protocol.RequestCode.SEND_MESSAGE_V2;
import static org.apache.rocketmq.common.protocol.RequestCode.UPDATE_CONSUMER_OFFSET;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.zip.CRC32;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.protocol.ResponseCode;
import org.apache.rocketmq.common.protocol.header.GetMaxOffsetRequestHeader;
import org.apache.rocketmq.common.protocol.header.GetMinOffsetRequestHeader;
import org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.common.protocol.header.PullMessageResponseHeader;
import org.apache.rocketmq.common.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.common.protocol.header.QueryConsumerOffsetResponseHeader;
import org.apache.rocketmq.common.protocol.header.QueryMessageRequestHeader;
import org.apache.rocketmq.common.protocol.header.QueryMessageResponseHeader;
import org.apache.rocketmq.common.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.common.protocol.header.SendMessageResponseHeader;
import org.apache.rocketmq.common.protocol.header.UpdateConsumerOffsetRequestHeader;
import org.apache.rocketmq.common.protocol.header.namesrv.GetRouteInfoRequestHeader;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.exception.RemotingTimeoutException;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** Requests of the client to the server, in the serialization that the client was started with. */
final class CallCases {
    private static final SerializeType SERIALIZATION = RemotingCommand.getSerializeTypeConfigInThisServer();
    private static final int MIB = 1024 * 1024;
    private static final int FRAME_BYTES_MAX = 16 * MIB;

    static Suite suite() {
        return new Suite()
            .add("invokeSync: header and body come back", CallCases::sync)
            .add("a body of no bytes arrives as none", CallCases::emptyBody)
            .add("text beyond ASCII, control characters, quotes", CallCases::oddText)
            .add("invokeAsync: 1,000 pipelined", CallCases::pipelined)
            .add("invokeOneway: taken, not answered", CallCases::oneway)
            .add("4 MiB body there and back", CallCases::largeBody)
            .add("frame of 16 MiB taken, one byte more cut off", CallCases::frameLimit)
            .add("route body, both JSON flavours", CallCases::route)
            .add("held pull is overtaken and answered later", CallCases::heldPull)
            .add("slow queries do not hold up sends", CallCases::slowQueries)
            .add("unknown code: 3", CallCases::unknownCode)
            .add("handler raises: 1, connection stays", CallCases::handlerRaises)
            .add("handler refuses: its code and remark", CallCases::handlerRefuses)
            .add("missing mandatory field: 1 and its name", CallCases::missingField)
            .add("invokeSync times out, next call works", CallCases::syncTimeout)
            .add("invokeAsync times out, connection stays", CallCases::asyncTimeout);
    }

    private static String sync(Peer peer) throws Exception {
        byte[] body = randomBytes(128);
        RemotingCommand answer = peer.call(SEND_MESSAGE_V2, send("plain topic", 3), body);
        Peer.succeeded(answer);
        Expect.equal("serialization of the answer", SERIALIZATION, answer.getSerializeTypeCurrentRPC());
        Expect.equal("version", MQVersion.CURRENT_VERSION, answer.getVersion());
        Expect.equal("language", LanguageCode.JAVA, answer.getLanguage());
        Expect.that("the same body", Arrays.equals(body, answer.getBody()));
        SendMessageResponseHeader header = Peer.header(answer, SendMessageResponseHeader.class);
        Expect.equal("msgId", crcOf(body), header.getMsgId());
        Expect.equal("queueId", 3, header.getQueueId());
        Expect.equal("queueOffset", (long) body.length, header.getQueueOffset());
        Expect.equal("transactionId", "plain topic", header.getTransactionId());
        Expect.equal("MSG_REGION", "DefaultRegion", answer.getExtFields().get("MSG_REGION"));
        Expect.equal("TRACE_ON", "true", answer.getExtFields().get("TRACE_ON"));
        return "";
    }

    private static String emptyBody(Peer peer) throws Exception {
        RemotingCommand answer = peer.call(SEND_MESSAGE_V2, send("empty", 0), new byte[0]);
        Peer.succeeded(answer);
        Expect.equal("queueOffset", -1L, Peer.header(answer, SendMessageResponseHeader.class).getQueueOffset());
        Expect.equal("body", null, answer.getBody());
        return "";
    }

    private static String oddText(Peer peer) throws Exception {
        String text = "\u0001\u0002 \"quoted\" \\ / \t\n\u007f é 主题 \ud83d\ude00";
        RemotingCommand answer = peer.call(SEND_MESSAGE_V2, send(text, 0), null);
        Peer.succeeded(answer);
        Expect.equal("text", text, Peer.header(answer, SendMessageResponseHeader.class).getTransactionId());
        return "";
    }

    private static String pipelined(Peer peer) throws Exception {
        List<CompletableFuture<RemotingCommand>> answers = new ArrayList<>();
        for (int number = 0; number < 1_000; number++) {
            // Every other one without a body, which the server answers in batches.
            byte[] body = number % 2 == 0 ? null : randomBytes(number);
            answers.add(peer.start(SEND_MESSAGE_V2, send("pipelined", number), body, Peer.TIMEOUT_MS));
        }
        for (int number = 0; number < answers.size(); number++) {
            RemotingCommand answer = Peer.await(answers.get(number));
            Expect.that("an answer to " + number, answer != null);
            Peer.succeeded(answer);
            Expect.equal("queueId", number, Peer.header(answer, SendMessageResponseHeader.class).getQueueId());
            Expect.equal("body of " + number, number % 2 == 0 ? 0 : number, lengthOf(answer.getBody()));
        }
        noStrays(peer);
        return "";
    }

    private static String oneway(Peer peer) throws Exception {
        UpdateConsumerOffsetRequestHeader update = new UpdateConsumerOffsetRequestHeader();
        update.setConsumerGroup("one-way group");
        update.setTopic("topic");
        update.setQueueId(7);
        update.setCommitOffset(Long.MAX_VALUE);
        peer.oneway(UPDATE_CONSUMER_OFFSET, update);

        QueryConsumerOffsetRequestHeader query = new QueryConsumerOffsetRequestHeader();
        query.setConsumerGroup("one-way group");
        query.setTopic("topic");
        query.setQueueId(7);
        RemotingCommand answer = peer.call(QUERY_CONSUMER_OFFSET, query, null);
        Peer.succeeded(answer);
        Expect.equal("offset", Long.MAX_VALUE, Peer.header(answer, QueryConsumerOffsetResponseHeader.class).getOffset());
        noStrays(peer);
        return "";
    }

    private static String largeBody(Peer peer) throws Exception {
        byte[] body = randomBytes(4 * MIB);
        RemotingCommand answer = peer.call(SEND_MESSAGE_V2, send("large", 0), body);
        Peer.succeeded(answer);
        Expect.that("the same body", Arrays.equals(body, answer.getBody()));
        return "";
    }

    private static String frameLimit(Peer peer) throws Exception {
        Peer.succeeded(peer.call(frameOf(FRAME_BYTES_MAX), Peer.TIMEOUT_MS));
        int before = peer.connections.size();
        // The stock client does not notice that its connection is gone before its time is up.
        Expect.fails(Exception.class, () -> peer.call(frameOf(FRAME_BYTES_MAX + 1), 1_500));
        Expect.that("the connection to be closed", peer.awaitClosed(1_000));
        Peer.succeeded(peer.call(SEND_MESSAGE_V2, send("again", 0), null));
        return "reconnected, " + (peer.connections.size() - before) + " new connection";
    }

    /** A send whose frame, length field included, has exactly so many bytes. The answer has no body. */
    private static RemotingCommand frameOf(int bytes) {
        SendMessageRequestHeaderV2 header = send("no echo", 0);
        RemotingCommand request = RemotingCommand.createRequestCommand(SEND_MESSAGE_V2, header);
        int beforeBody = request.encodeHeader(0).remaining();
        if (SERIALIZATION == SerializeType.ROCKETMQ) {
            // Asking has put the fields into the map as well, and the binary form would write both.
            request.setExtFields(null);
        }
        request.setBody(new byte[bytes - beforeBody]);
        return request;
    }

    private static String route(Peer peer) throws Exception {
        TopicRouteData wanted = new TopicRouteData();
        wanted.setOrderTopicConf("broker-a:4;broker-b:8");
        wanted.setQueueDatas(new ArrayList<>());
        wanted.setBrokerDatas(new ArrayList<>());
        wanted.setFilterServerTable(new HashMap<>());
        for (String name : List.of("broker-a", "broker-b")) {
            QueueData queues = new QueueData();
            queues.setBrokerName(name);
            queues.setReadQueueNums(4);
            queues.setWriteQueueNums(8);
            queues.setPerm(6);
            wanted.getQueueDatas().add(queues);
            HashMap<Long, String> addresses = new HashMap<>();
            addresses.put(0L, "10.0.0.1:10911");
            addresses.put(1L, "10.0.0.2:10911");
            wanted.getBrokerDatas().add(new BrokerData("cluster", name, addresses));
        }
        for (String flavour : List.of("standard", "fastjson")) {
            GetRouteInfoRequestHeader request = new GetRouteInfoRequestHeader();
            request.setTopic(flavour);
            RemotingCommand answer = peer.call(GET_ROUTEINFO_BY_TOPIC, request, null);
            Peer.succeeded(answer);
            Expect.equal(flavour, wanted, TopicRouteData.decode(answer.getBody(), TopicRouteData.class));
        }
        return "";
    }

    private static String heldPull(Peer peer) throws Exception {
        long held = 800;
        CompletableFuture<RemotingCommand> pull = peer.start(PULL_MESSAGE, pull(held), null, Peer.TIMEOUT_MS);
        for (int number = 0; number < 20; number++) {
            Peer.succeeded(peer.call(SEND_MESSAGE_V2, send("meanwhile", number), null));
        }
        Expect.that("the pull to be held still", !pull.isDone());
        RemotingCommand answer = Peer.await(pull);
        Peer.succeeded(answer);
        Expect.equal("body", "held", new String(answer.getBody(), "UTF-8"));
        PullMessageResponseHeader header = Peer.header(answer, PullMessageResponseHeader.class);
        Expect.equal("suggestWhichBrokerId", 1L, header.getSuggestWhichBrokerId());
        Expect.equal("nextBeginOffset", 43L, header.getNextBeginOffset());
        Expect.equal("minOffset", Long.MIN_VALUE, header.getMinOffset());
        Expect.equal("maxOffset", Long.MAX_VALUE, header.getMaxOffset());
        return "";
    }

    private static String slowQueries(Peer peer) throws Exception {
        // More of them than the server runs at a time.
        List<CompletableFuture<RemotingCommand>> queries = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            queries.add(peer.start(QUERY_MESSAGE, query(1_000), null, Peer.TIMEOUT_MS));
        }
        long started = System.nanoTime();
        for (int number = 0; number < 100; number++) {
            Peer.succeeded(peer.call(SEND_MESSAGE_V2, send("meanwhile", number), null));
        }
        long ms = (System.nanoTime() - started) / 1_000_000;
        Expect.that("no query to be answered yet", queries.stream().noneMatch(CompletableFuture::isDone));
        for (CompletableFuture<RemotingCommand> query : queries) {
            RemotingCommand answer = Peer.await(query);
            Peer.succeeded(answer);
            QueryMessageResponseHeader header = Peer.header(answer, QueryMessageResponseHeader.class);
            Expect.equal("indexLastUpdateTimestamp", 1_000L, header.getIndexLastUpdateTimestamp());
        }
        return "100 sends in " + ms + " ms beside 10 queries of a second";
    }

    private static String unknownCode(Peer peer) throws Exception {
        RemotingCommand answer = peer.call(9_999, null, null);
        Expect.equal("code", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, answer.getCode());
        Expect.equal("remark", " request type 9999 not supported", answer.getRemark());
        return "answered in " + answer.getSerializeTypeCurrentRPC();
    }

    private static String handlerRaises(Peer peer) throws Exception {
        int before = peer.connections.size();
        GetMaxOffsetRequestHeader request = new GetMaxOffsetRequestHeader();
        request.setTopic("topic");
        request.setQueueId(0);
        RemotingCommand answer = peer.call(GET_MAX_OFFSET, request, null);
        Expect.equal("code", ResponseCode.SYSTEM_ERROR, answer.getCode());
        Peer.succeeded(peer.call(SEND_MESSAGE_V2, send("after", 0), null));
        Expect.equal("connections made", 0, peer.connections.size() - before);
        return "remark: " + answer.getRemark();
    }

    private static String handlerRefuses(Peer peer) throws Exception {
        GetMinOffsetRequestHeader request = new GetMinOffsetRequestHeader();
        request.setTopic("nowhere");
        request.setQueueId(0);
        RemotingCommand answer = peer.call(GET_MIN_OFFSET, request, null);
        Expect.equal("code", ResponseCode.TOPIC_NOT_EXIST, answer.getCode());
        Expect.equal("remark", "no topic nowhere", answer.getRemark());
        return "";
    }

    private static String missingField(Peer peer) throws Exception {
        GetMinOffsetRequestHeader request = new GetMinOffsetRequestHeader();
        request.setTopic("topic");
        RemotingCommand answer = peer.call(GET_MIN_OFFSET, request, null);
        Expect.equal("code", ResponseCode.SYSTEM_ERROR, answer.getCode());
        Expect.that("the field's name in: " + answer.getRemark(), answer.getRemark().contains("queueId"));
        return "remark: " + answer.getRemark();
    }

    private static String syncTimeout(Peer peer) throws Exception {
        long started = System.nanoTime();
        Expect.fails(RemotingTimeoutException.class,
            () -> peer.call(RemotingCommand.createRequestCommand(QUERY_MESSAGE, query(3_000)), 300));
        long ms = (System.nanoTime() - started) / 1_000_000;
        Expect.that("300 ms to pass, not " + ms, ms >= 290 && ms < 2_500);
        // The stock client closes its connection after a timeout.
        Expect.that("the connection to be closed", peer.awaitClosed(1_000));
        Peer.succeeded(peer.call(SEND_MESSAGE_V2, send("after", 0), null));
        noStrays(peer);
        return "after " + ms + " ms";
    }

    private static String asyncTimeout(Peer peer) throws Exception {
        int before = peer.connections.size();
        CompletableFuture<RemotingCommand> query = peer.start(QUERY_MESSAGE, query(3_500), null, 300);
        Expect.equal("answer", null, Peer.await(query));
        Peer.succeeded(peer.call(SEND_MESSAGE_V2, send("after", 0), null));
        Expect.equal("connections made", 0, peer.connections.size() - before);
        // The late answer comes all the same and finds nobody.
        for (int waited = 0; peer.strays.isEmpty() && waited < 4_000; waited += 20) {
            Thread.sleep(20);
        }
        Expect.equal("late answers", 1, peer.strays.size());
        peer.strays.clear();
        return "";
    }

    static SendMessageRequestHeaderV2 send(String topic, int queueId) {
        SendMessageRequestHeaderV2 header = new SendMessageRequestHeaderV2();
        header.setA("producers");
        header.setB(topic);
        header.setC("TBW102");
        header.setD(4);
        header.setE(queueId);
        header.setF(0);
        header.setG(System.currentTimeMillis());
        header.setH(0);
        header.setI("KEYS\u0001key\u0002TAGS\u0001tag\u0002");
        header.setJ(0);
        header.setK(false);
        header.setM(false);
        return header;
    }

    private static PullMessageRequestHeader pull(long heldMs) {
        PullMessageRequestHeader header = new PullMessageRequestHeader();
        header.setConsumerGroup("consumers");
        header.setTopic("topic");
        header.setQueueId(0);
        header.setQueueOffset(42L);
        header.setMaxMsgNums(32);
        header.setSysFlag(2);
        header.setCommitOffset(0L);
        header.setSuspendTimeoutMillis(heldMs);
        header.setSubVersion(0L);
        return header;
    }

    /** A query that the server answers after so many milliseconds. */
    static QueryMessageRequestHeader query(int ms) {
        QueryMessageRequestHeader header = new QueryMessageRequestHeader();
        header.setTopic("topic");
        header.setKey("key");
        header.setMaxNum(ms);
        header.setBeginTimestamp(0L);
        header.setEndTimestamp(Long.MAX_VALUE);
        return header;
    }

    static byte[] randomBytes(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    static String crcOf(byte[] bytes) {
        CRC32 crc = new CRC32();
        crc.update(bytes);
        return String.format("%08X", crc.getValue());
    }

    private static int lengthOf(byte[] body) {
        return body == null ? 0 : body.length;
    }

    private static void noStrays(Peer peer) {
        Expect.equal("answers nobody asked for", List.of(), List.copyOf(peer.strays));
    }

    private CallCases() {
    }
}
