package org.tfsparsecap.demo;

import android.graphics.Bitmap;

/** Delivers images of a camera. Used on the main thread. */
interface FrameSource {
  /** Receives frames and problems on the main thread. */
  interface Listener {
    /** Whether the next frame is wanted; called on any thread. */
    boolean wantsFrame();

    /** Receives a frame, upright. */
    void onFrame(Bitmap frame);

    /** Called when the camera cannot be used; no frames follow. */
    void onProblem(Problem problem);
  }

  /** Starts the camera. */
  void start(Listener listener);

  /** Stops the camera, for other apps and the battery; may be called more than once. */
  void stop();
}
