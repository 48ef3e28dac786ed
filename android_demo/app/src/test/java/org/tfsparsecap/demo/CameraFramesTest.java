package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.graphics.Bitmap;
import android.graphics.BitmapFactory;
import android.graphics.ImageFormat;
import android.hardware.camera2.CameraAccessException;
import android.hardware.camera2.CameraCharacteristics;
import android.hardware.camera2.CameraDevice;
import android.hardware.camera2.CameraManager;
import android.util.Size;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.annotation.Config;
import org.robolectric.shadows.ShadowCameraCharacteristics;
import org.robolectric.shadows.StreamConfigurationMapBuilder;

/** The camera of the framework, the conversion of its frames, and when a phone lies flat. */
@RunWith(RobolectricTestRunner.class)
@Config(application = TestApplication.class)
public final class CameraFramesTest {
  private final List<Problem> problems = new ArrayList<>();
  private final CameraFrames frames = new CameraFrames(RuntimeEnvironment.getApplication());

  @Test
  public void colourOfFramesIsThatOfPillow() throws IOException {
    byte[] planes = Files.readAllBytes(SamplePhotos.captionerFixture("frame.yuv").toPath());
    Bitmap expected = BitmapFactory.decodeFile(SamplePhotos.captionerFixture("frame_expected.png").getPath());
    int width = expected.getWidth();
    int height = expected.getHeight();
    int half = width / 2 * (height / 2);
    // As many phones deliver them: padded rows, and u and v in turns.
    int stride = width + 16;
    ByteBuffer y = ByteBuffer.allocateDirect(stride * height);
    for (int row = 0; row < height; row++) {
      y.position(row * stride);
      y.put(planes, row * width, width);
    }
    ByteBuffer chroma = ByteBuffer.allocateDirect(stride * height / 2 + 1);
    for (int i = 0; i < half; i++) {
      int place = i / (width / 2) * stride + i % (width / 2) * 2;
      chroma.put(place, planes[width * height + i]);
      chroma.put(place + 1, planes[width * height + half + i]);
    }
    ByteBuffer u = chroma.slice();
    chroma.position(1);
    int[] pixels = YuvFrames.pixels(width, height, y, stride, u, chroma.slice(), stride, 2);
    int largest = 0;
    for (int i = 0; i < pixels.length; i++) {
      int reference = expected.getPixel(i % width, i / width);
      for (int shift = 0; shift <= 24; shift += 8) {
        largest = Math.max(largest, Math.abs((pixels[i] >> shift & 255) - (reference >> shift & 255)));
      }
    }
    assertTrue("difference: " + largest, largest <= 1);
  }

  @Test
  public void framesAreLargeEnoughAndUpright() {
    Size[] sizes = {new Size(4000, 3000), new Size(640, 480), new Size(1280, 720), new Size(320, 240)};
    assertEquals(new Size(640, 480), CameraFrames.choose(sizes));
    assertEquals(new Size(352, 288), CameraFrames.choose(new Size[] {new Size(176, 144), new Size(352, 288)}));
    // The usual sensors: at the back in portrait and in landscape, and at the front.
    assertEquals(90, CameraFrames.degrees(90, 0, false));
    assertEquals(0, CameraFrames.degrees(90, 1, false));
    assertEquals(180, CameraFrames.degrees(90, 3, false));
    assertEquals(270, CameraFrames.degrees(270, 0, true));
    assertEquals(0, CameraFrames.degrees(270, 1, true));
  }

  @Test
  public void problemsOfTheCameraAreDistinguished() {
    assertEquals(Problem.CAMERA_REFUSED, CameraFrames.problem(new SecurityException()));
    int[][] reasons = {
      {CameraAccessException.CAMERA_IN_USE, CameraDevice.StateCallback.ERROR_CAMERA_IN_USE},
      {CameraAccessException.MAX_CAMERAS_IN_USE, CameraDevice.StateCallback.ERROR_MAX_CAMERAS_IN_USE},
      {CameraAccessException.CAMERA_DISABLED, CameraDevice.StateCallback.ERROR_CAMERA_DISABLED},
      {CameraAccessException.CAMERA_ERROR, CameraDevice.StateCallback.ERROR_CAMERA_DEVICE},
    };
    Problem[] expected = {
      Problem.CAMERA_IN_USE, Problem.CAMERA_IN_USE, Problem.CAMERA_DISABLED, Problem.CAMERA_FAILED
    };
    for (int i = 0; i < reasons.length; i++) {
      assertEquals(expected[i], CameraFrames.problem(new CameraAccessException(reasons[i][0])));
      assertEquals(expected[i], CameraFrames.problem(reasons[i][1]));
    }
  }

  @Test
  public void missingCameraIsReported() {
    start();
    ScreenTest.await(() -> !problems.isEmpty(), "the problem");
    assertEquals(Collections.singletonList(Problem.NO_CAMERA_DEVICE), problems);
  }

  @Test
  public void cameraThatAnotherAppTakesIsReportedOnce() {
    CameraCharacteristics camera = ShadowCameraCharacteristics.newCameraCharacteristics();
    shadowOf(camera).set(CameraCharacteristics.LENS_FACING, CameraCharacteristics.LENS_FACING_BACK);
    shadowOf(camera)
        .set(
            CameraCharacteristics.SCALER_STREAM_CONFIGURATION_MAP,
            StreamConfigurationMapBuilder.newBuilder()
                .addOutputSize(ImageFormat.YUV_420_888, new Size(640, 480))
                .build());
    CameraManager manager = RuntimeEnvironment.getApplication().getSystemService(CameraManager.class);
    shadowOf(manager).addCamera("0", camera);
    start();
    shadowOf(manager).triggerDisconnect();
    ScreenTest.await(() -> !problems.isEmpty(), "the problem");
    frames.stop();
    ScreenTest.idleMainLooper();
    assertEquals(Collections.singletonList(Problem.CAMERA_IN_USE), problems);
  }

  @Test
  public void phoneLiesFlatOnlyIfItDoesNotMove() {
    List<Boolean> reports = new ArrayList<>();
    FlatSensor sensor = new FlatSensor(RuntimeEnvironment.getApplication(), reports::add);
    float[] held = {0.3f, 6.9f, 6.9f};
    float[] table = {0.05f, 0.02f, 9.81f};
    int time = measure(sensor, 0, 20, held);
    time = measure(sensor, time, 5, table);
    assertEquals(Collections.singletonList(false), reports);
    time = measure(sensor, time, 5, table);
    assertEquals(Arrays.asList(false, true), reports);
    time = measure(sensor, time, 1, held);
    // Held above a table: level, but trembling.
    time = measure(sensor, time, 20, table, new float[] {0.3f, 0.3f, 9.6f});
    assertEquals(Arrays.asList(false, true, false), reports);
    measure(sensor, time, 10, new float[] {0, 0, -9.81f});
    assertEquals("face down", Arrays.asList(false, true, false, true), reports);
  }

  @Test
  public void eachStartReportsWhetherThePhoneLiesFlat() {
    List<Boolean> reports = new ArrayList<>();
    FlatSensor sensor = new FlatSensor(RuntimeEnvironment.getApplication(), reports::add);
    float[] held = {0.3f, 6.9f, 6.9f};
    sensor.start();
    measure(sensor, 0, 5, held);
    assertEquals("once", Collections.singletonList(false), reports);
    sensor.stop();
    sensor.start();
    measure(sensor, 5, 5, held);
    assertEquals(Arrays.asList(false, false), reports);
  }

  /** Measures values in turns, five times a second; returns the time in units of 0.2 s. */
  private static int measure(FlatSensor sensor, int time, int count, float[]... values) {
    for (int i = 0; i < count; i++) {
      sensor.add(values[i % values.length], (time + i) * 200_000_000L);
    }
    return time + count;
  }

  private void start() {
    frames.start(
        new FrameSource.Listener() {
          @Override
          public boolean wantsFrame() {
            return true;
          }

          @Override
          public void onFrame(Bitmap frame) {}

          @Override
          public void onProblem(Problem problem) {
            problems.add(problem);
          }
        });
  }
}
