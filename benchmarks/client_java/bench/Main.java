package bench;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** Does with the stock client what a line of JSON asks for, and answers with a line of figures. */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        // Whatever else prints must not be taken for an answer.
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject answer;
            try {
                answer = run(JSON.parseObject(line)).answer();
            } catch (Exception failure) {
                failure.printStackTrace();
                answer = new JSONObject();
                answer.put("error", failure.toString());
            }
            answers.println(answer.toJSONString());
            answers.flush();
        }
        System.exit(0);
    }

    private static Meter run(JSONObject load) throws Exception {
        String work = load.getString("work");
        return switch (work) {
            case "send" -> Sending.each(load);
            case "pipeline" -> Sending.pipelined(load);
            case "batch" -> Sending.batches(load);
            case "push" -> Consuming.push(load);
            case "lite_pull" -> Consuming.litePull(load);
            case "read_range" -> Consuming.range(load);
            default -> throw new IllegalArgumentException(work);
        };
    }
}
