package org.tfsparsecap.captioner;

import static org.junit.Assume.assumeTrue;

import android.graphics.Bitmap;
import java.util.Arrays;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

/**
 * Latency of the dense model relative to the sparse one, on this machine, not on a phone: {@code
 * mvn -f android_demo/pom.xml test -Dtest=LatencyBenchmarkTest -Dbenchmark=true}.
 */
@RunWith(RobolectricTestRunner.class)
public class LatencyBenchmarkTest {
  private static final int ROUNDS = 60;
  private static final int WARM_UP = 10;

  @Test
  public void latencyRatio() throws Exception {
    assumeTrue("this is a benchmark: give -Dbenchmark=true", Boolean.getBoolean("benchmark"));
    Bitmap[] images = new Bitmap[8];
    for (int i = 0; i < images.length; i++) {
      images[i] = Fixtures.bitmap("scene_" + i + ".png");
    }
    for (int threads = 1; threads <= 2; threads++) {
      try (Captioner sparse = captioner("sparse.tflite", threads);
          Captioner dense = captioner("dense.tflite", threads)) {
        double[] ratios = new double[ROUNDS];
        for (int round = -WARM_UP; round < ROUNDS; round++) {
          // Alternating, so that other load affects both.
          Bitmap image = images[Math.floorMod(round, images.length)];
          double ratio =
              dense.caption(image).runMilliseconds() / sparse.caption(image).runMilliseconds();
          if (round >= 0) {
            ratios[round] = ratio;
          }
        }
        Arrays.sort(ratios);
        System.out.printf(
            "MEASURED with %d thread(s) dense takes %.2f times as long as sparse (quartiles %.2f, %.2f)%n",
            threads, ratios[ROUNDS / 2], ratios[ROUNDS / 4], ratios[3 * ROUNDS / 4]);
      }
    }
  }

  private static Captioner captioner(String asset, int threads) throws Exception {
    return new Captioner(CaptionerBundle.fromFile(Fixtures.asset(asset)), threads);
  }
}
