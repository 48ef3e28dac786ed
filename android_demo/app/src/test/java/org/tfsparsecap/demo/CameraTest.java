package org.tfsparsecap.demo;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.Manifest;
import android.app.Activity;
import android.content.Intent;
import android.content.pm.PackageInfo;
import android.content.pm.PackageManager;
import android.content.pm.ProviderInfo;
import android.net.Uri;
import android.provider.MediaStore;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.util.concurrent.TimeUnit;
import org.junit.Test;
import org.robolectric.android.controller.ActivityController;

/** Photos taken with the camera app. */
public final class CameraTest extends ScreenTest {
  @Test
  public void requestsOnlyTheCamera() throws PackageManager.NameNotFoundException {
    PackageInfo info =
        app.getPackageManager().getPackageInfo(app.getPackageName(), PackageManager.GET_PERMISSIONS);
    assertArrayEquals(new String[] {Manifest.permission.CAMERA}, info.requestedPermissions);
  }

  /** Android starts the camera app only for apps with a permission that they declare. */
  @Test
  public void asksForThePermissionBeforeTheCameraAppIsStarted() {
    shadowOf(app).denyPermissions(Manifest.permission.CAMERA);
    MainActivity screen = open().get();
    click(screen, R.id.take_photo);
    String[] asked = shadowOf(screen).getLastRequestedPermission().requestedPermissions;
    assertArrayEquals(new String[] {Manifest.permission.CAMERA}, asked);
    shadowOf(screen).getNextStartedActivityForResult(); // the question
    screen.onRequestPermissionsResult(MainActivity.TAKE, asked, new int[] {PackageManager.PERMISSION_DENIED});
    idleMainLooper();
    assertEquals(screen.getString(R.string.problem_camera_refused), notice(screen));
    shadowOf(app).grantPermissions(asked);
    screen.onRequestPermissionsResult(MainActivity.TAKE, asked, new int[] {PackageManager.PERMISSION_GRANTED});
    Intent started = shadowOf(screen).getNextStartedActivityForResult().intent;
    assertEquals(MediaStore.ACTION_IMAGE_CAPTURE, started.getAction());
  }

  @Test
  public void grantsTheCameraAppAccessToOneFile() {
    MainActivity screen = open().get();
    click(screen, R.id.take_photo);
    Intent asked = shadowOf(screen).getNextStartedActivityForResult().intent;
    assertEquals(MediaStore.ACTION_IMAGE_CAPTURE, asked.getAction());
    Uri into = asked.getParcelableExtra(MediaStore.EXTRA_OUTPUT, Uri.class);
    assertEquals(into, asked.getClipData().getItemAt(0).getUri());
    int rights = Intent.FLAG_GRANT_WRITE_URI_PERMISSION | Intent.FLAG_GRANT_READ_URI_PERMISSION;
    assertEquals(rights, asked.getFlags() & rights);
    ProviderInfo provider =
        app.getPackageManager().resolveContentProvider(CameraFiles.AUTHORITY, 0);
    assertFalse(provider.exported);
    assertTrue(provider.grantUriPermissions);
  }

  @Test
  public void photoIsCaptionedAndDeletedWhenReplaced() throws IOException {
    MainActivity screen = open().get();
    takePhoto(screen, SamplePhotos.CROSS_HEART);
    awaitCaptions(screen);
    assertEquals(expectedCaption(SamplePhotos.CROSS_HEART), text(screen, R.id.caption));
    assertEquals(1, cameraFiles().length);
    click(screen, R.id.choose_photos);
    answer(screen, Activity.RESULT_OK, new Intent().setData(album.photo(SamplePhotos.TRIANGLE)));
    awaitCaptions(screen);
    assertEquals(0, cameraFiles().length);
  }

  @Test
  public void photoIsDeletedWhenTheScreenFinishes() throws IOException {
    ActivityController<MainActivity> controller = open();
    takePhoto(controller.get(), SamplePhotos.CROSS_HEART);
    awaitCaptions(controller.get());
    controller.get().finish();
    controller.pause().stop().destroy();
    assertEquals(0, cameraFiles().length);
  }

  @Test
  public void cancellingTheCameraKeepsThePreviousPhoto() throws IOException {
    MainActivity screen = open().get();
    takePhoto(screen, SamplePhotos.CROSS_HEART);
    awaitCaptions(screen);
    click(screen, R.id.take_photo);
    answer(screen, Activity.RESULT_CANCELED, null);
    assertEquals(expectedCaption(SamplePhotos.CROSS_HEART), text(screen, R.id.caption));
    assertFalse(isShown(screen, R.id.notice));
    assertEquals(1, cameraFiles().length);
  }

  @Test
  public void reportsCameraWithoutPhoto() {
    MainActivity screen = open().get();
    click(screen, R.id.take_photo);
    answer(screen, Activity.RESULT_OK, null);
    assertEquals(screen.getString(R.string.problem_camera_no_photo), notice(screen));
    assertEquals(0, cameraFiles().length);
  }

  @Test
  public void reportsMissingCameraApp() {
    shadowOf(app).checkActivities(true);
    MainActivity screen = open().get();
    click(screen, R.id.take_photo);
    assertEquals(screen.getString(R.string.problem_no_camera), notice(screen));
    assertEquals(0, cameraFiles().length);
  }

  @Test
  public void reportsInsufficientStorage() throws IOException {
    // A file in place of the folder, so that nothing can be written there.
    assertTrue(CameraFiles.folder(app).createNewFile());
    MainActivity screen = open().get();
    click(screen, R.id.take_photo);
    assertEquals(screen.getString(R.string.problem_camera_no_storage), notice(screen));
  }

  @Test
  public void photoTakenWhileTheAppIsKilledIsCaptioned() throws IOException {
    ActivityController<MainActivity> controller = open();
    click(controller.get(), R.id.take_photo);
    Intent asked = shadowOf(controller.get()).getNextStartedActivityForResult().intent;
    MainActivity next = killAndRestore(controller).get();
    write(asked, SamplePhotos.CROSS_HEART);
    next.onActivityResult(MainActivity.TAKE, Activity.RESULT_OK, null);
    awaitCaptions(next);
    assertEquals(expectedCaption(SamplePhotos.CROSS_HEART), text(next, R.id.caption));
  }

  @Test
  public void oldPhotosOfAKilledProcessAreDeleted() throws IOException {
    File folder = CameraFiles.folder(app);
    assertTrue(folder.mkdirs());
    File old = new File(folder, "old.jpg");
    File young = new File(folder, "young.jpg");
    assertTrue(old.createNewFile() && young.createNewFile());
    assertTrue(old.setLastModified(System.currentTimeMillis() - TimeUnit.DAYS.toMillis(2)));
    open();
    await(() -> !old.exists(), "the old photo to be deleted");
    assertTrue(young.exists());
  }

  @Test
  public void providerExposesNoOtherFiles() {
    Uri outside =
        Uri.parse("content://" + CameraFiles.AUTHORITY + "/..%2f..%2fshared_prefs%2fsettings.xml");
    Uri unknown = Uri.parse("content://" + CameraFiles.AUTHORITY + "/unknown.jpg");
    for (Uri uri : new Uri[] {outside, unknown}) {
      assertThrows(
          FileNotFoundException.class, () -> app.getContentResolver().openOutputStream(uri));
    }
    assertNotNull(app.getContentResolver().getType(unknown));
  }

  private void takePhoto(MainActivity screen, String photo) throws IOException {
    click(screen, R.id.take_photo);
    write(shadowOf(screen).peekNextStartedActivityForResult().intent, photo);
    answer(screen, Activity.RESULT_OK, null);
  }

  /** Writes a photo as a camera app does. */
  private void write(Intent asked, String photo) throws IOException {
    Uri into = asked.getParcelableExtra(MediaStore.EXTRA_OUTPUT, Uri.class);
    try (OutputStream out = app.getContentResolver().openOutputStream(into)) {
      out.write(SamplePhotos.bytes(photo));
    }
  }

  private String[] cameraFiles() {
    String[] files = CameraFiles.folder(app).list();
    return files == null ? new String[0] : files;
  }
}
