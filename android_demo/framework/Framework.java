import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;

/**
 * Unpacks Android's framework classes so that every supported JDK can compile against them: those of
 * Android 16 are class files of Java 21, which the compiler of JDK 17 rejects, although it understands
 * all that is in them.
 *
 * <p>Usage: {@code java Framework.java android-all.jar FOLDER}
 */
final class Framework {
  private static final int MINOR = 4;
  private static final byte[] JAVA_8 = {0, 0, 0, 52};

  public static void main(String[] arguments) throws IOException {
    Path folder = Paths.get(arguments[1]);
    try (ZipFile jar = new ZipFile(arguments[0])) {
      for (ZipEntry entry : Collections.list(jar.entries())) {
        if (entry.getName().endsWith(".class") && isFramework(entry.getName())) {
          unpack(jar, entry, folder.resolve(entry.getName()));
        }
      }
    }
  }

  /** Whether an app sees the class: not internal ones, and not those of Java, which the JDK provides. */
  private static boolean isFramework(String name) {
    boolean shown = name.startsWith("android/") || name.startsWith("dalvik/") || name.startsWith("org/");
    return shown && !name.startsWith("android/internal/");
  }

  private static void unpack(ZipFile jar, ZipEntry entry, Path file) throws IOException {
    byte[] content;
    try (InputStream in = jar.getInputStream(entry)) {
      content = in.readAllBytes();
    }
    System.arraycopy(JAVA_8, 0, content, MINOR, JAVA_8.length);
    Files.createDirectories(file.getParent());
    Files.write(file, content);
  }
}
