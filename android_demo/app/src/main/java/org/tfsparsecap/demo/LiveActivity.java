package org.tfsparsecap.demo;

import android.Manifest;
import android.content.ActivityNotFoundException;
import android.content.Intent;
import android.content.pm.PackageManager;
import android.net.Uri;
import android.os.Bundle;
import android.provider.Settings;
import android.util.Log;
import android.view.accessibility.AccessibilityManager;
import android.widget.Toolbar;

/** Describes what the camera sees while the phone is pointed at it. */
public final class LiveActivity extends ViewModelActivity<LiveState, LiveViewModel> {
  private static final String TAG = "LiveActivity";
  private static final int CAMERA = 1;
  private static final String ASKED = "asked";

  private LiveScreen screen;
  private FlatSensor flat;
  /** Whether the user was asked for the camera since the screen was opened. */
  private boolean asked;

  @Override
  LiveViewModel createViewModel(CaptionApplication app) {
    AccessibilityManager readers = app.getSystemService(AccessibilityManager.class);
    return new LiveViewModel(
        app.models(), app.settings(), app.createSpeaker(), app.createCamera(), readers::isTouchExplorationEnabled);
  }

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    setContentView(R.layout.live);
    WindowSetup.padForSystemBars(findViewById(R.id.root));
    WindowSetup.showUpButton(this, (Toolbar) findViewById(R.id.toolbar));
    asked = saved != null && saved.getBoolean(ASKED);
    screen = new LiveScreen(this, viewModel, this::retry);
    flat = new FlatSensor(this, viewModel::setFlat);
  }

  @Override
  void show(LiveState state) {
    screen.show(state);
  }

  @Override
  protected void onStart() {
    super.onStart();
    flat.start();
    if (isGranted()) {
      viewModel.setAllowed(true);
    } else if (asked) {
      viewModel.onProblem(Problem.CAMERA_REFUSED);
    } else {
      ask();
    }
  }

  @Override
  protected void onStop() {
    flat.stop();
    if (!isChangingConfigurations()) { // a rotation is no pause
      viewModel.setAllowed(false);
    }
    super.onStop();
  }

  @Override
  protected void onSaveInstanceState(Bundle out) {
    super.onSaveInstanceState(out);
    out.putBoolean(ASKED, asked);
  }

  @Override
  public void onRequestPermissionsResult(int request, String[] permissions, int[] results) {
    if (isGranted()) {
      viewModel.setAllowed(true);
    } else if (results.length > 0) { // otherwise the question was interrupted
      viewModel.onProblem(Problem.CAMERA_REFUSED);
    } else {
      asked = false;
    }
  }

  private boolean isGranted() {
    return checkSelfPermission(Manifest.permission.CAMERA) == PackageManager.PERMISSION_GRANTED;
  }

  private void ask() {
    asked = true;
    requestPermissions(new String[] {Manifest.permission.CAMERA}, CAMERA);
  }

  private void retry() {
    if (isGranted()) {
      viewModel.retry();
    } else if (shouldShowRequestPermissionRationale(Manifest.permission.CAMERA)) {
      ask();
    } else {
      // Android does not ask again.
      Uri app = Uri.fromParts("package", getPackageName(), null);
      try {
        startActivity(new Intent(Settings.ACTION_APPLICATION_DETAILS_SETTINGS, app));
      } catch (ActivityNotFoundException absent) {
        Log.w(TAG, "no settings", absent); // the message says where to allow it
      }
    }
  }
}
