package org.tfsparsecap.demo;

import android.content.Context;
import android.graphics.Bitmap;
import android.graphics.ImageFormat;
import android.hardware.camera2.CameraAccessException;
import android.hardware.camera2.CameraCaptureSession;
import android.hardware.camera2.CameraCharacteristics;
import android.hardware.camera2.CameraDevice;
import android.hardware.camera2.CameraManager;
import android.hardware.camera2.CaptureRequest;
import android.hardware.camera2.params.StreamConfigurationMap;
import android.hardware.display.DisplayManager;
import android.media.Image;
import android.media.ImageReader;
import android.os.Handler;
import android.os.HandlerThread;
import android.os.Looper;
import android.util.Log;
import android.util.Size;
import android.view.Display;
import java.util.Collections;

/** Frames of the camera at the back of the phone, or of another one if there is none. */
final class CameraFrames implements FrameSource {
  private static final String TAG = "CameraFrames";
  /** Twice the input of the built-in captioners, as {@code PhotoReader} reads JPEGs. */
  private static final int MIN_SIDE = 480;

  private final Context context;
  private final CameraManager manager;
  private final Handler main = new Handler(Looper.getMainLooper());
  /** Null while the camera is stopped. */
  private Opened opened;

  CameraFrames(Context context) {
    this.context = context.getApplicationContext();
    manager = context.getSystemService(CameraManager.class);
  }

  @Override
  public void start(Listener listener) {
    stop();
    Opened opening = new Opened(listener);
    opened = opening;
    try {
      opening.open();
    } catch (CameraAccessException | SecurityException | IllegalArgumentException error) {
      // IllegalArgumentException: the camera was unplugged.
      Log.w(TAG, "the camera cannot be opened", error);
      opening.fail(problem(error));
    }
  }

  @Override
  public void stop() {
    if (opened != null) {
      opened.close();
      opened = null;
    }
  }

  static Problem problem(Exception error) {
    if (error instanceof SecurityException) {
      return Problem.CAMERA_REFUSED;
    }
    int reason = error instanceof CameraAccessException ? ((CameraAccessException) error).getReason() : 0;
    if (reason == CameraAccessException.CAMERA_IN_USE || reason == CameraAccessException.MAX_CAMERAS_IN_USE) {
      return Problem.CAMERA_IN_USE;
    }
    return reason == CameraAccessException.CAMERA_DISABLED ? Problem.CAMERA_DISABLED : Problem.CAMERA_FAILED;
  }

  /** @param error of {@link CameraDevice.StateCallback}. */
  static Problem problem(int error) {
    switch (error) {
      case CameraDevice.StateCallback.ERROR_CAMERA_IN_USE:
      case CameraDevice.StateCallback.ERROR_MAX_CAMERAS_IN_USE:
        return Problem.CAMERA_IN_USE;
      case CameraDevice.StateCallback.ERROR_CAMERA_DISABLED:
        return Problem.CAMERA_DISABLED;
      default:
        return Problem.CAMERA_FAILED;
    }
  }

  /** The smallest size that the captioner needs, or the largest that there is. */
  static Size choose(Size[] sizes) {
    Size best = sizes[0];
    for (Size size : sizes) {
      int side = Math.min(size.getWidth(), size.getHeight());
      int bestSide = Math.min(best.getWidth(), best.getHeight());
      boolean better = bestSide < MIN_SIDE ? side > bestSide : side >= MIN_SIDE && area(size) < area(best);
      if (better) {
        best = size;
      }
    }
    return best;
  }

  private static long area(Size size) {
    return (long) size.getWidth() * size.getHeight();
  }

  /**
   * Returns the rotation that makes a frame upright, clockwise in degrees.
   *
   * @param sensor orientation of the sensor, in degrees.
   * @param display rotation of the display, in steps of 90 degrees.
   * @param facingUser whether the camera is at the front, so that the display turns the other way.
   */
  static int degrees(int sensor, int display, boolean facingUser) {
    return (sensor + (facingUser ? 90 : 270) * display) % 360;
  }

  /** A camera that is being opened or is open. */
  private final class Opened extends CameraDevice.StateCallback implements ImageReader.OnImageAvailableListener {
    private final Listener listener;
    private final HandlerThread thread = new HandlerThread("camera");
    private final Handler handler;
    private CameraCharacteristics camera;
    // Used on the camera's thread from here on, once the camera is being opened.
    /** Whether the camera was requested and has not answered: it must be closed when it does. */
    private boolean requested;

    private ImageReader reader;
    private CameraDevice device;
    private boolean closed;

    Opened(Listener listener) {
      this.listener = listener;
      thread.start();
      handler = new Handler(thread.getLooper());
    }

    void open() throws CameraAccessException {
      String chosen = null;
      for (String id : manager.getCameraIdList()) {
        CameraCharacteristics each = manager.getCameraCharacteristics(id);
        if (chosen == null || isFacing(each, CameraCharacteristics.LENS_FACING_BACK)) {
          chosen = id;
          camera = each;
          if (isFacing(each, CameraCharacteristics.LENS_FACING_BACK)) {
            break;
          }
        }
      }
      if (chosen == null) {
        fail(Problem.NO_CAMERA_DEVICE);
      } else {
        manager.openCamera(chosen, this, handler);
        handler.post(() -> requested = device == null);
      }
    }

    private boolean isFacing(CameraCharacteristics of, int direction) {
      Integer facing = of.get(CameraCharacteristics.LENS_FACING);
      return facing != null && facing == direction;
    }

    /** Reports a problem, unless the camera is stopped in the meantime. */
    void fail(Problem problem) {
      main.post(
          () -> {
            if (opened == this) {
              stop();
              listener.onProblem(problem);
            }
          });
    }

    void close() {
      handler.post(
          () -> {
            closed = true;
            if (!requested) {
              release();
            }
          });
    }

    private void release() {
      if (device != null) {
        device.close();
      }
      if (reader != null) {
        reader.close();
      }
      thread.quitSafely();
    }

    /** Returns whether the camera, which has answered, is still wanted; otherwise it is closed. */
    private boolean isWanted(CameraDevice device) {
      this.device = device;
      requested = false;
      if (closed) {
        release();
      }
      return !closed;
    }

    @Override
    @SuppressWarnings("deprecation") // the replacement requires Android 9
    public void onOpened(CameraDevice device) {
      if (!isWanted(device)) {
        return;
      }
      StreamConfigurationMap streams = camera.get(CameraCharacteristics.SCALER_STREAM_CONFIGURATION_MAP);
      Size[] sizes = streams == null ? null : streams.getOutputSizes(ImageFormat.YUV_420_888);
      if (sizes == null || sizes.length == 0) {
        fail(Problem.CAMERA_FAILED); // a camera that measures depth, for example
        return;
      }
      try {
        Size size = choose(sizes);
        reader = ImageReader.newInstance(size.getWidth(), size.getHeight(), ImageFormat.YUV_420_888, 2);
        reader.setOnImageAvailableListener(this, handler);
        device.createCaptureSession(Collections.singletonList(reader.getSurface()), new Started(), handler);
      } catch (CameraAccessException | IllegalStateException error) {
        Log.w(TAG, "the camera cannot be started", error);
        fail(problem(error));
      }
    }

    @Override
    public void onDisconnected(CameraDevice device) {
      if (isWanted(device)) {
        fail(Problem.CAMERA_IN_USE); // an app with a higher priority takes it
      }
    }

    @Override
    public void onError(CameraDevice device, int error) {
      Log.w(TAG, "camera error " + error);
      if (isWanted(device)) {
        fail(problem(error));
      }
    }

    @Override
    public void onImageAvailable(ImageReader reader) {
      try (Image image = closed ? null : reader.acquireLatestImage()) {
        if (image != null && listener.wantsFrame()) {
          Bitmap frame = YuvFrames.bitmap(image, degrees());
          main.post(
              () -> {
                if (opened == this) {
                  listener.onFrame(frame);
                }
              });
        }
      }
    }

    private int degrees() {
      Integer sensor = camera.get(CameraCharacteristics.SENSOR_ORIENTATION);
      Display display = context.getSystemService(DisplayManager.class).getDisplay(Display.DEFAULT_DISPLAY);
      boolean facingUser = isFacing(camera, CameraCharacteristics.LENS_FACING_FRONT);
      return CameraFrames.degrees(sensor == null ? 0 : sensor, display.getRotation(), facingUser);
    }

    /** Requests frames as soon as the camera is set up. */
    private final class Started extends CameraCaptureSession.StateCallback {
      @Override
      public void onConfigured(CameraCaptureSession session) {
        if (closed) {
          return;
        }
        try {
          CaptureRequest.Builder request = device.createCaptureRequest(CameraDevice.TEMPLATE_PREVIEW);
          request.addTarget(reader.getSurface());
          session.setRepeatingRequest(request.build(), null, handler);
        } catch (CameraAccessException | IllegalStateException error) {
          Log.w(TAG, "the camera delivers no frames", error);
          fail(problem(error));
        }
      }

      @Override
      public void onConfigureFailed(CameraCaptureSession session) {
        fail(Problem.CAMERA_FAILED);
      }
    }
  }
}
