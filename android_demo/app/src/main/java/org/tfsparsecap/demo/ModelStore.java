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
 * The models that there are, and which one is in use. The choice and the person's own bundle outlive the
 * process. What takes time says so; the rest may be called on the main thread. Safe for several threads.
 */
final class ModelStore {
  private static final String TAG = "ModelStore";
  private static final String CHOSEN = "model";
  private static final String OWN_NAME = "own_model_name";
  private static final String OWN_NUMBER = "own_model_number";
  // Left free on the phone, so that an opened model does not make the system complain.
  private static final long SPARE_BYTES = 8 << 20;
  private static final int TRIAL_SIDE = 64;

  private final Context context;
  private final Engine engine;
  private final SharedPreferences settings;
  private final ToLongFunction<File> freeBytes;
  private final File folder;
  private final Set<ModelChoice> builtIn;
  // A slow provider holds it for minutes, so it is not the lock of what the main thread calls.
  private final Lock copying = new ReentrantLock();
  // Since the process began, so that two broken models do not call for each other for ever.
  private final Set<ModelChoice> failed = EnumSet.noneOf(ModelChoice.class);

  /**
   * @param builtIn the models that come with the app.
   * @param freeBytes how many bytes can be written to a folder's file system.
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

  /** The models that there are, built-in ones first. */
  List<ModelChoice> available() {
    List<ModelChoice> available = new ArrayList<>(builtIn);
    if (ownFile().exists()) {
      available.add(ModelChoice.OWN);
    }
    return available;
  }

  /** The model in use; null where there is none at all. */
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

  /** Changes whenever captions may come out differently because another model is in use. */
  String key() {
    ModelChoice chosen = chosen();
    return chosen == ModelChoice.OWN ? chosen.name() + settings.getInt(OWN_NUMBER, 0) : "" + chosen;
  }

  /** Uses a model from now on. */
  synchronized void choose(ModelChoice choice) {
    failed.remove(choice);
    settings.edit().putString(CHOSEN, choice.name()).apply();
  }

  /** Uses a built-in model in place of one that failed; false where there is none that has not failed. */
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

  /** What the person's own bundle was called where it was opened. */
  String ownName() {
    return settings.getString(OWN_NAME, ModelChoice.OWN.fileName());
  }

  /**
   * Opens a model. Takes time.
   *
   * @throws BundleException it cannot be used.
   * @throws IOException it cannot be read.
   */
  Engine.Model open(ModelChoice choice) throws BundleException, IOException {
    return choice.isBuiltIn() ? engine.openBuiltIn(choice) : engine.open(ownFile());
  }

  /**
   * Copies a bundle into the app's own folder and uses it from now on. What was in use stays as it is until
   * the new one is complete, safely on the disk, and has captioned a picture. Takes time.
   *
   * @throws BundleException it is no bundle that works.
   * @throws NoRoomException there is not enough room for it.
   * @throws IOException it cannot be read or written.
   */
  void install(Uri document) throws BundleException, IOException {
    copying.lock();
    try {
      copyAndTry(document);
    } finally {
      copying.unlock();
    }
  }

  private void copyAndTry(Uri document) throws BundleException, IOException {
    if (!folder.isDirectory() && !folder.mkdirs()) {
      throw new IOException("cannot make " + folder);
    }
    File incoming = incomingFile();
    try {
      copy(document, incoming);
      try (Engine.Model model = engine.open(incoming)) {
        Bitmap grey = Bitmap.createBitmap(TRIAL_SIDE, TRIAL_SIDE, Bitmap.Config.ARGB_8888);
        grey.eraseColor(Color.GRAY);
        model.caption(grey);
      }
      adopt(incoming, displayName(document));
    } finally {
      delete(incoming);
    }
  }

  private synchronized void adopt(File incoming, String name) throws IOException {
    if (!incoming.renameTo(ownFile())) {
      throw new IOException("cannot rename " + incoming);
    }
    settings
        .edit()
        .putString(OWN_NAME, name)
        .putInt(OWN_NUMBER, settings.getInt(OWN_NUMBER, 0) + 1)
        .putString(CHOSEN, ModelChoice.OWN.name())
        .apply();
  }

  /** Deletes the person's own bundle; where it was in use, a built-in one is used again. */
  synchronized void removeOwn() {
    boolean used = chosen() == ModelChoice.OWN;
    delete(ownFile());
    SharedPreferences.Editor change = settings.edit().remove(OWN_NAME);
    (used ? change.remove(CHOSEN) : change).apply();
  }

  /** Deletes what a copy left behind that was cut off when the process was killed. */
  void sweep() {
    if (!copying.tryLock()) {
      return; // it belongs to a copy that is being made
    }
    try {
      delete(incomingFile());
    } finally {
      copying.unlock();
    }
  }

  private File incomingFile() {
    return new File(folder, "incoming.tflite");
  }

  private File ownFile() {
    return new File(folder, ModelChoice.OWN.fileName());
  }

  private void copy(Uri document, File to) throws BundleException, IOException {
    ContentResolver resolver = context.getContentResolver();
    long size = size(resolver, document);
    long free = freeBytes.applyAsLong(folder) - SPARE_BYTES;
    long written = 0;
    try (InputStream opened = resolver.openInputStream(document);
        FileOutputStream out = new FileOutputStream(to)) {
      if (opened == null) {
        throw new FileNotFoundException("nothing behind " + document);
      }
      BufferedInputStream in = new BufferedInputStream(opened);
      CaptionerBundle.checkHead(in);
      if (size > free) {
        throw noRoom(size, free, null);
      }
      byte[] buffer = new byte[1 << 16];
      for (int read = in.read(buffer); read >= 0; read = in.read(buffer)) {
        written += read;
        if (written > free) {
          throw noRoom(0, free, null); // its size was not told, or told wrong
        }
        out.write(buffer, 0, read);
      }
      out.getFD().sync();
    } catch (RuntimeException refused) {
      throw unreadable(document, refused);
    } catch (IOException failed) {
      throw isDiskFull(failed) ? noRoom(size, free, failed) : failed;
    }
  }

  /** @param size of what should be written, 0 where that is not told. */
  private NoRoomException noRoom(long size, long free, Throwable cause) {
    return new NoRoomException(
        size == 0 ? null : Formatter.formatShortFileSize(context, size + SPARE_BYTES),
        Formatter.formatShortFileSize(context, Math.max(0, free + SPARE_BYTES)),
        cause);
  }

  private static boolean isDiskFull(IOException failed) {
    Throwable cause = failed.getCause();
    return cause instanceof ErrnoException && ((ErrnoException) cause).errno == OsConstants.ENOSPC;
  }

  /** In bytes; 0 where it is not told. */
  private static long size(ContentResolver resolver, Uri document) throws IOException {
    try (AssetFileDescriptor file = resolver.openAssetFileDescriptor(document, "r")) {
      return file == null ? 0 : Math.max(0, file.getLength());
    } catch (FileNotFoundException streamed) {
      return 0; // copying finds out whether it is there
    } catch (RuntimeException refused) {
      throw unreadable(document, refused);
    }
  }

  /** Providers are other people's programs: what they throw arrives here, SecurityException the most. */
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
      Log.w(TAG, "a provider that cannot tell names", provider);
    }
    String last = document.getLastPathSegment();
    return last == null ? ModelChoice.OWN.fileName() : last;
  }

  private static void delete(File file) {
    if (file.exists() && !file.delete()) {
      Log.w(TAG, "cannot delete " + file);
    }
  }
}
