import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Says what Kafka's library of regular expressions makes of patterns, one a line.
 *
 * <p>The first line has names, separated by spaces. The answer to each other line is "=" and a 1
 * for each name that the pattern matches as a whole, 0 for others, or "!" and the error.
 */
public final class RegexVerdicts {
    private RegexVerdicts() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String[] names = in.readLine().split(" ");
        for (String pattern = in.readLine(); pattern != null; pattern = in.readLine()) {
            out.println(verdict(pattern, names));
        }
        out.flush();
    }

    private static String verdict(String pattern, String[] names) {
        Pattern compiled;
        try {
            compiled = Pattern.compile(pattern);
        } catch (PatternSyntaxException error) {
            return "!" + error.getDescription();
        }
        StringBuilder found = new StringBuilder("=");
        for (String name : names) {
            found.append(compiled.matcher(name).matches() ? '1' : '0');
        }
        return found.toString();
    }
}
