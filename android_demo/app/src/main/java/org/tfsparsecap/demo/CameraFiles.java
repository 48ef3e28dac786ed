package org.tfsparsecap.demo;

import android.content.Context;
import android.net.Uri;
import android.util.Log;
import java.io.File;
import java.io.IOException;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/** Photos that the camera app takes for this one: in the cache folder, and only while they are shown. */
final class CameraFiles {
  static final String AUTHORITY = "org.tfsparsecap.demo.camera";

  private static final String TAG = "CameraFiles";
  private static final long OLD = TimeUnit.DAYS.toMillis(1);
  // Of a photo of 48 million pixels.
  private static final long ROOM_BYTES = 24 << 20;

  private final File folder;

  CameraFiles(Context context) {
    folder = folder(context);
  }

  /** Where the files lie. */
  static File folder(Context context) {
    return new File(context.getCacheDir(), "camera");
  }

  /**
   * Makes an empty file for the next photo.
   *
   * @throws IOException there is no room for one.
   */
  Uri create() throws IOException {
    if (!folder.isDirectory() && !folder.mkdirs()) {
      throw new IOException("cannot make " + folder);
    }
    if (folder.getUsableSpace() < ROOM_BYTES) {
      throw new IOException("less than " + ROOM_BYTES + " bytes free");
    }
    File file = new File(folder, UUID.randomUUID() + ".jpg");
    if (!file.createNewFile()) {
      throw new IOException(file + " exists");
    }
    return new Uri.Builder().scheme("content").authority(AUTHORITY).path(file.getName()).build();
  }

  /** Whether there is something in a file. */
  boolean isFilled(Uri photo) {
    return file(photo).length() > 0;
  }

  /** Deletes a photo. */
  void delete(Uri photo) {
    File file = file(photo);
    if (file.exists() && !file.delete()) {
      Log.w(TAG, "cannot delete " + file);
    }
  }

  /** Deletes what was left by a process that was killed and never came back. */
  void sweep() {
    File[] files = folder.listFiles();
    if (files == null) {
      return;
    }
    for (File file : files) {
      // Younger ones may belong to another of this app's windows, which still can come back.
      if (System.currentTimeMillis() - file.lastModified() > OLD && !file.delete()) {
        Log.w(TAG, "cannot delete " + file);
      }
    }
  }

  private File file(Uri photo) {
    return new File(folder, new File(photo.getPath()).getName());
  }
}
