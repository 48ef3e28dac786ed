package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.content.ClipData;
import android.content.ClipboardManager;
import android.content.Intent;
import android.content.pm.ResolveInfo;
import android.os.Parcel;
import android.os.Parcelable;
import java.util.List;
import org.junit.Test;

/** Photos shared by other apps, and captions shared or copied from this one. */
public final class ShareTest extends ScreenTest {
  @Test
  public void acceptsOneOrSeveralSharedImages() {
    for (String action : new String[] {Intent.ACTION_SEND, Intent.ACTION_SEND_MULTIPLE}) {
      for (String type : new String[] {"image/jpeg", "image/heic", "image/*"}) {
        Intent shared = new Intent(action).setType(type);
        List<ResolveInfo> takers = app.getPackageManager().queryIntentActivities(shared, 0);
        assertEquals(action + " " + type, 1, takers.size());
        assertTrue(takers.get(0).activityInfo.name.endsWith("MainActivity"));
      }
    }
    Intent text = new Intent(Intent.ACTION_SEND).setType("text/plain");
    assertEquals(0, app.getPackageManager().queryIntentActivities(text, 0).size());
  }

  @Test
  public void sharedPhotoIsCaptioned() {
    MainActivity screen = openWith(SamplePhotos.HEART_CROSS).get();
    assertEquals(expectedCaption(SamplePhotos.HEART_CROSS), text(screen, R.id.caption));
  }

  @Test
  public void severalSharedPhotosAreCaptioned() {
    MainActivity screen = openWith(SamplePhotos.HEART_CROSS, SamplePhotos.TRIANGLE).get();
    assertEquals(2, children(screen, R.id.thumbnails).size());
    children(screen, R.id.thumbnails).get(1).performClick();
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(screen, R.id.caption));
  }

  @Test
  public void photoInClipDataIsFound() {
    Intent intent = new Intent(Intent.ACTION_SEND).setType("image/*");
    intent.setClipData(ClipData.newRawUri("", album.photo(SamplePhotos.TRIANGLE)));
    MainActivity screen = open(MainActivity.class, intent).get();
    awaitCaptions(screen);
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), text(screen, R.id.caption));
  }

  @Test
  public void reportsSharedContentWithoutPhoto() {
    Intent nothing = new Intent(Intent.ACTION_SEND).setType("image/*");
    Intent text = new Intent(nothing).putExtra(Intent.EXTRA_STREAM, "not an address");
    Intent unreadable = new Intent(nothing).putExtra(Intent.EXTRA_STREAM, new Unreadable());
    for (Intent intent : new Intent[] {nothing, text, unreadable}) {
      MainActivity screen = open(MainActivity.class, intent).get();
      assertEquals(screen.getString(R.string.problem_nothing_shared), notice(screen));
      assertTrue(isShown(screen, R.id.choose_photos));
    }
  }

  @Test
  public void ignoresTheOldIntentWhenOpenedFromRecentApps() {
    Intent old = share(album.photo(SamplePhotos.TRIANGLE));
    old.addFlags(Intent.FLAG_ACTIVITY_LAUNCHED_FROM_HISTORY);
    MainActivity screen = open(MainActivity.class, old).get();
    assertTrue(isShown(screen, R.id.welcome));
  }

  @Test
  public void captionIsSharedAsText() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    click(screen, R.id.share);
    Intent chooser = shadowOf(screen).getNextStartedActivity();
    assertEquals(Intent.ACTION_CHOOSER, chooser.getAction());
    Intent sent = chooser.getParcelableExtra(Intent.EXTRA_INTENT, Intent.class);
    assertEquals(Intent.ACTION_SEND, sent.getAction());
    assertEquals("text/plain", sent.getType());
    assertEquals(expectedCaption(SamplePhotos.HEART_STAR), sent.getStringExtra(Intent.EXTRA_TEXT));
    assertFalse("the photo is not shared", sent.hasExtra(Intent.EXTRA_STREAM));
  }

  @Test
  public void reportsMissingShareTarget() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR).get();
    shadowOf(app).checkActivities(true);
    click(screen, R.id.share);
    assertEquals(screen.getString(R.string.problem_no_share_target), notice(screen));
  }

  @Test
  public void captionOfTheSelectedPhotoIsCopied() {
    MainActivity screen = openWith(SamplePhotos.HEART_STAR, SamplePhotos.TRIANGLE).get();
    children(screen, R.id.thumbnails).get(1).performClick();
    click(screen, R.id.copy);
    ClipData clip = app.getSystemService(ClipboardManager.class).getPrimaryClip();
    assertEquals(expectedCaption(SamplePhotos.TRIANGLE), clip.getItemAt(0).getText().toString());
  }

  /** Like an instance of another app's class. */
  private static final class Unreadable implements Parcelable {
    @Override
    public int describeContents() {
      return 0;
    }

    @Override
    public void writeToParcel(Parcel to, int flags) {}
  }
}
