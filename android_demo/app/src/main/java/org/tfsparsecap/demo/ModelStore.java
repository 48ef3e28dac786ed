package org.tfsparsecap.demo;

import android.content.ContentResolver;
import android.content.Context;
import android.content.SharedPreferences;
import android.content.res.AssetFileDescriptor;
import android.database.Cursor;
import android.graphics.Bitmap;
import android.graphics.Color;
import android.net.Uri;
import android.provider.OpenableColumns;
import android.system.ErrnoException;
import android.system.OsConstants;
import android.text.format.Formatter;
import android.util.Log;
import java.io.BufferedInputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.ToLongFunction;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.CaptionerBundle;

/**
 * The available models and the one in use. The choice and the user's bundle persist. Slow methods
 * are marked; the others may be called on the main thread. Thread-safe.
 */
final class ModelStore {
  private static final String TAG = "ModelStore";
  private static final String CHOSEN = "model";
  private static final String USER_MODEL_NAME = "user_model_name";
  private static final String USER_MODEL_NUMBER = "user_model_number";
  // Left free, so that an opened model does not cause low-storage warnings.
  private static final long RESERVED_BYTES = 8 << 20;
  private static final int TEST_IMAGE_SIDE = 64;

  private final Context context;
  private final Engine engine;
  private final SharedPreferences settings;
  private final ToLongFunction<File> freeBytes;
  private final File folder;
  private final Set<ModelChoice> builtIn;
  // A slow provider can hold this lock for minutes, so the main thread uses another one.
  private final Lock installLock = new ReentrantLock();
  // Kept for the life of the process, so that two broken models do not fall back to each other
  // forever.
  private final Set<ModelChoice> failed = EnumSet.noneOf(ModelChoice.class);

  /**
   * @param builtIn the models packaged in the APK.
   * @param freeBytes returns the free bytes in the file system of a folder.
   */
  ModelStore(
      Context context,
      Engine engine,
      Set<ModelChoice> builtIn,
      SharedPreferences settings,
      ToLongFunction<File> freeBytes) {
    this.context = context.getApplicationContext();
    this.engine = engine;
    this.builtIn = builtIn;
    this.settings = settings;
    this.freeBytes = freeBytes;
    folder = new File(context.getFilesDir(), "models");
  }

  /** The available models, built-in ones first. */
  List<ModelChoice> available() {
    List<ModelChoice> available = new ArrayList<>(builtIn);
    if (userFile().exists()) {
      available.add(ModelChoice.USER);
    }
    return available;
  }

  /** The model in use; null if there is none. */
  ModelChoice chosen() {
    List<ModelChoice> available = available();
    String name = settings.getString(CHOSEN, "");
    for (ModelChoice choice : available) {
      if (choice.name().equals(name)) {
        return choice;
      }
    }
    return available.isEmpty() ? null : available.get(0);
  }

  /** Identifies the model in use; changes whenever captions may change. */
  String key() {
    ModelChoice chosen = chosen();
    return chosen == ModelChoice.USER ? chosen.name() + settings.getInt(USER_MODEL_NUMBER, 0) : "" + chosen;
  }

  /** Uses a model from now on. */
  synchronized void choose(ModelChoice choice) {
    failed.remove(choice);
    settings.edit().putString(CHOSEN, choice.name()).apply();
  }

  /** Falls back to a built-in model that has not failed; returns false if there is none. */
  synchronized boolean fallBack(ModelChoice broken) {
    failed.add(broken);
    for (ModelChoice choice : builtIn) {
      if (!failed.contains(choice)) {
        choose(choice);
        return true;
      }
    }
    return false;
  }

  /** The file name of the user's bundle when it was opened. */
  String userModelName() {
    return settings.getString(USER_MODEL_NAME, ModelChoice.USER.fileName());
  }

  /**
   * Opens a model. Slow.
   *
   * @throws BundleException it cannot be used.
   * @throws IOException it cannot be read.
   */
  Engine.Model open(ModelChoice choice) throws BundleException, IOException {
    return choice.isBuiltIn() ? engine.openBuiltIn(choice) : engine.open(userFile());
  }

  /**
   * Copies a bundle into the app's folder and uses it from now on. The previous model stays in use
   * until the new one is written to disk and has captioned a test image. Slow.
   *
   * @throws BundleException the bundle cannot be used.
   * @throws InsufficientStorageException there is not enough storage.
   * @throws IOException the bundle cannot be read or written.
   */
  void install(Uri document) throws BundleException, IOException {
    installLock.lock();
    try {
      copyAndCheck(document);
    } finally {
      installLock.unlock();
    }
  }

  private void copyAndCheck(Uri document) throws BundleException, IOException {
    if (!folder.isDirectory() && !folder.mkdirs()) {
      throw new IOException("cannot create " + folder);
    }
    File incoming = incomingFile();
    try {
      copy(document, incoming);
      try (Engine.Model model = engine.open(incoming)) {
        Bitmap grey = Bitmap.createBitmap(TEST_IMAGE_SIDE, TEST_IMAGE_SIDE, Bitmap.Config.ARGB_8888);
        grey.eraseColor(Color.GRAY);
        model.caption(grey);
      }
      activate(incoming, displayName(document));
    } finally {
      delete(incoming);
    }
  }

  private synchronized void activate(File incoming, String name) throws IOException {
    if (!incoming.renameTo(userFile())) {
      throw new IOException("cannot rename " + incoming);
    }
    settings
        .edit()
        .putString(USER_MODEL_NAME, name)
        .putInt(USER_MODEL_NUMBER, settings.getInt(USER_MODEL_NUMBER, 0) + 1)
        .putString(CHOSEN, ModelChoice.USER.name())
        .apply();
  }

  /** Deletes the user's bundle; if it was in use, a built-in model is used again. */
  synchronized void removeUserModel() {
    boolean used = chosen() == ModelChoice.USER;
    delete(userFile());
    SharedPreferences.Editor change = settings.edit().remove(USER_MODEL_NAME);
    (used ? change.remove(CHOSEN) : change).apply();
  }

  /** Deletes an incomplete copy left by a process that was killed. */
  void deleteLeftovers() {
    if (!installLock.tryLock()) {
      return; // a copy is in progress
    }
    try {
      delete(incomingFile());
    } finally {
      installLock.unlock();
    }
  }

  private File incomingFile() {
    return new File(folder, "incoming.tflite");
  }

  private File userFile() {
    return new File(folder, ModelChoice.USER.fileName());
  }

  private void copy(Uri document, File to) throws BundleException, IOException {
    ContentResolver resolver = context.getContentResolver();
    long size = size(resolver, document);
    long free = freeBytes.applyAsLong(folder) - RESERVED_BYTES;
    long written = 0;
    try (InputStream opened = resolver.openInputStream(document);
        FileOutputStream out = new FileOutputStream(to)) {
      if (opened == null) {
        throw new FileNotFoundException("no content at " + document);
      }
      BufferedInputStream in = new BufferedInputStream(opened);
      CaptionerBundle.checkHeader(in);
      if (size > free) {
        throw insufficientStorage(size, free, null);
      }
      byte[] buffer = new byte[1 << 16];
      for (int read = in.read(buffer); read >= 0; read = in.read(buffer)) {
        written += read;
        if (written > free) {
          throw insufficientStorage(0, free, null); // its size was unknown or wrong
        }
        out.write(buffer, 0, read);
      }
      out.getFD().sync();
    } catch (RuntimeException refused) {
      throw unreadable(document, refused);
    } catch (IOException failed) {
      throw isDiskFull(failed) ? insufficientStorage(size, free, failed) : failed;
    }
  }

  /** @param size size of the file, 0 if unknown. */
  private InsufficientStorageException insufficientStorage(long size, long free, Throwable cause) {
    return new InsufficientStorageException(
        size == 0 ? null : Formatter.formatShortFileSize(context, size + RESERVED_BYTES),
        Formatter.formatShortFileSize(context, Math.max(0, free + RESERVED_BYTES)),
        cause);
  }

  private static boolean isDiskFull(IOException failed) {
    Throwable cause = failed.getCause();
    return cause instanceof ErrnoException && ((ErrnoException) cause).errno == OsConstants.ENOSPC;
  }

  /** Returns the size in bytes, 0 if unknown. */
  private static long size(ContentResolver resolver, Uri document) throws IOException {
    try (AssetFileDescriptor file = resolver.openAssetFileDescriptor(document, "r")) {
      return file == null ? 0 : Math.max(0, file.getLength());
    } catch (FileNotFoundException streamed) {
      return 0; // copying reports a missing document
    } catch (RuntimeException refused) {
      throw unreadable(document, refused);
    }
  }

  /** Providers belong to other apps and may throw anything, most often SecurityException. */
  private static IOException unreadable(Uri document, RuntimeException refused) {
    return new IOException(document + " cannot be read: " + refused, refused);
  }

  private String displayName(Uri document) {
    String[] columns = {OpenableColumns.DISPLAY_NAME};
    try (Cursor row = context.getContentResolver().query(document, columns, null, null, null)) {
      if (row != null && row.moveToFirst() && row.getString(0) != null) {
        return row.getString(0);
      }
    } catch (RuntimeException provider) {
      Log.w(TAG, "the provider returned no name", provider);
    }
    String last = document.getLastPathSegment();
    return last == null ? ModelChoice.USER.fileName() : last;
  }

  private static void delete(File file) {
    if (file.exists() && !file.delete()) {
      Log.w(TAG, "cannot delete " + file);
    }
  }
}
