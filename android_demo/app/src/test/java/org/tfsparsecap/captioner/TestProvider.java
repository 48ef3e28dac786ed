package org.tfsparsecap.captioner;

import android.content.ContentProvider;
import android.content.ContentValues;
import android.database.Cursor;
import android.net.Uri;
import android.os.ParcelFileDescriptor;
import java.io.FileNotFoundException;
import org.robolectric.Robolectric;

/** A content provider of another app. */
public final class TestProvider extends ContentProvider {
  private Opener opener;

  /** What the provider does when a file is opened. */
  interface Opener {
    ParcelFileDescriptor open(Uri uri) throws FileNotFoundException;
  }

  /** Returns a URI of a provider with this behaviour. */
  static Uri offer(Opener opener) {
    String authority = "provider" + System.nanoTime();
    Robolectric.buildContentProvider(TestProvider.class).create(authority).get().opener = opener;
    return Uri.parse("content://" + authority + "/1");
  }

  @Override
  public ParcelFileDescriptor openFile(Uri uri, String mode) throws FileNotFoundException {
    return opener.open(uri);
  }

  @Override
  public boolean onCreate() {
    return true;
  }

  @Override
  public Cursor query(Uri uri, String[] columns, String selection, String[] values, String order) {
    return null;
  }

  @Override
  public String getType(Uri uri) {
    return "application/octet-stream";
  }

  @Override
  public Uri insert(Uri uri, ContentValues values) {
    return null;
  }

  @Override
  public int delete(Uri uri, String selection, String[] values) {
    return 0;
  }

  @Override
  public int update(Uri uri, ContentValues values, String selection, String[] arguments) {
    return 0;
  }
}
