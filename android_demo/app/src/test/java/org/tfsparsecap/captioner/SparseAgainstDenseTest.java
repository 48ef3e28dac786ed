package org.tfsparsecap.captioner;

import static org.junit.Assume.assumeTrue;

import android.graphics.Bitmap;
import java.util.Arrays;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

/**
 * The time of the app's dense model as a multiple of the sparse one's, on this machine and not on a phone:
 * {@code mvn -f android_demo/pom.xml test -Dtest=SparseAgainstDenseTest -Dbenchmark=true}.
 */
@RunWith(RobolectricTestRunner.class)
public class SparseAgainstDenseTest {
  private static final int ROUNDS = 60;
  private static final int WARM_UP = 10;

  @Test
  public void ratioOfTheTimeInTheInterpreter() throws Exception {
    assumeTrue("this is a benchmark: give -Dbenchmark=true", Boolean.getBoolean("benchmark"));
    Bitmap[] pictures = new Bitmap[8];
    for (int i = 0; i < pictures.length; i++) {
      pictures[i] = Fixtures.bitmap("scene_" + i + ".png");
    }
    for (int threads = 1; threads <= 2; threads++) {
      try (Captioner sparse = captioner("sparse.tflite", threads);
          Captioner dense = captioner("dense.tflite", threads)) {
        double[] ratios = new double[ROUNDS];
        for (int round = -WARM_UP; round < ROUNDS; round++) {
          // One after the other, so that what else the machine does meets both.
          Bitmap picture = pictures[Math.floorMod(round, pictures.length)];
          double ratio =
              dense.caption(picture).runMilliseconds() / sparse.caption(picture).runMilliseconds();
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
