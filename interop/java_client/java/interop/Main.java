package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * Does with the stock client what it is told, line by line.
 *
 * Usage: Main NAMESERVER. Each line of the standard input is a JSON object {"id", "do": COMMAND, ...}; each
 * is answered by one line with its id, and "result" or "failure": {"type", "code", "message"}. The end of
 * the input is the end of the program, without any of the goodbyes that a stopped client would say.
 */
public final class Main {
    private final Producers producers;
    private final PushConsumers pushConsumers;
    private final PullConsumers pullConsumers;
    private final LitePullConsumers litePullConsumers;
    private final TransactionProducers transactionProducers;
    private final Requests requests;

    private Main(String nameserver) {
        producers = new Producers(nameserver);
        pushConsumers = new PushConsumers(nameserver);
        pullConsumers = new PullConsumers(nameserver);
        litePullConsumers = new LitePullConsumers(nameserver);
        transactionProducers = new TransactionProducers(nameserver);
        requests = new Requests(nameserver);
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = System.out;
        // Whatever the stock parts print must not come between the answers.
        System.setOut(System.err);
        Main main = new Main(args[0]);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String answer = JSON.toJSONString(main.answer(JSON.parseObject(line)),
                SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect);
            answers.write((answer + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private JSONObject answer(JSONObject request) {
        JSONObject answer = new JSONObject();
        answer.put("id", request.get("id"));
        try {
            answer.put("result", run(request));
        } catch (Exception failure) {
            failure.printStackTrace();
            answer.put("failure", describe(failure));
        }
        return answer;
    }

    private Object run(JSONObject request) throws Exception {
        String[] command = request.getString("do").split(" ", 2);
        return switch (command[0]) {
            case "producer" -> producers.run(command[1], request);
            case "push" -> pushConsumers.run(command[1], request);
            case "pull" -> pullConsumers.run(command[1], request);
            case "lite" -> litePullConsumers.run(command[1], request);
            case "transaction" -> transactionProducers.run(command[1], request);
            case "request" -> requests.run(command[1], request);
            case "mqadmin" -> AdminTool.run(request);
            default -> throw new IllegalArgumentException("no command " + request.getString("do"));
        };
    }

    static JSONObject describe(Throwable failure) {
        JSONObject description = new JSONObject();
        description.put("type", failure.getClass().getSimpleName());
        description.put("message", failure.getMessage());
        if (failure.getCause() != null) {
            // Of a send that was tried several times: what the last broker said.
            description.put("cause", failure.getCause().getMessage());
        }
        if (failure instanceof MQBrokerException refused) {
            description.put("code", refused.getResponseCode());
        } else if (failure instanceof MQClientException refused) {
            description.put("code", refused.getResponseCode());
        }
        return description;
    }
}
