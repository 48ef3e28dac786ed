package org.tfsparsecap.demo;

import android.content.Context;
import android.net.Uri;
import android.util.Log;
import java.io.File;
import java.io.IOException;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/**
 * Photos taken by the camera app for this app. They are kept in the cache folder only while they
 * are shown.
 */
final class CameraFiles {
  static final String AUTHORITY = "org.tfsparsecap.demo.camera";

  private static final String TAG = "CameraFiles";
  private static final long MAX_AGE = TimeUnit.DAYS.toMillis(1);
  // Size of a photo of 48 megapixels.
  private static final long MIN_FREE_BYTES = 24 << 20;

  private final File folder;

  CameraFiles(Context context) {
    folder = folder(context);
  }

  /** The folder of the files. */
  static File folder(Context context) {
    return new File(context.getCacheDir(), "camera");
  }

  /**
   * Creates an empty file for the next photo.
   *
   * @throws IOException there is not enough storage.
   */
  Uri create() throws IOException {
    if (!folder.isDirectory() && !folder.mkdirs()) {
      throw new IOException("cannot create " + folder);
    }
    if (folder.getUsableSpace() < MIN_FREE_BYTES) {
      throw new IOException("less than " + MIN_FREE_BYTES + " bytes free");
    }
    File file = new File(folder, UUID.randomUUID() + ".jpg");
    if (!file.createNewFile()) {
      throw new IOException(file + " exists");
    }
    return new Uri.Builder().scheme("content").authority(AUTHORITY).path(file.getName()).build();
  }

  /** Whether the camera app has written the photo. */
  boolean hasContent(Uri photo) {
    return file(photo).length() > 0;
  }

  /** Deletes a photo. */
  void delete(Uri photo) {
    File file = file(photo);
    if (file.exists() && !file.delete()) {
      Log.w(TAG, "cannot delete " + file);
    }
  }

  /** Deletes photos left by a process that was killed and never restored. */
  void deleteLeftovers() {
    File[] files = folder.listFiles();
    if (files == null) {
      return;
    }
    for (File file : files) {
      // Newer ones may belong to another window of this app, which can still be restored.
      if (System.currentTimeMillis() - file.lastModified() > MAX_AGE && !file.delete()) {
        Log.w(TAG, "cannot delete " + file);
      }
    }
  }

  private File file(Uri photo) {
    return new File(folder, new File(photo.getPath()).getName());
  }
}
