package org.tfsparsecap.demo;

import android.Manifest;
import android.content.ActivityNotFoundException;
import android.content.ClipData;
import android.content.ClipboardManager;
import android.content.Intent;
import android.content.pm.PackageManager;
import android.net.Uri;
import android.os.Build;
import android.os.Bundle;
import android.util.Log;
import android.view.Menu;
import android.view.MenuItem;
import android.widget.Toast;
import android.widget.Toolbar;
import java.util.List;

/**
 * Shows photos and their captions. Forwards the actions of the user and of other apps to the view
 * model.
 */
public final class MainActivity extends ViewModelActivity<MainState, MainViewModel>
    implements MainScreen.Actions {
  static final int CHOOSE = 1;
  static final int TAKE = 2;

  private static final String TAG = "MainActivity";

  private MainScreen screen;

  @Override
  MainViewModel createViewModel(CaptionApplication app) {
    return new MainViewModel(
        app, app.engine(), app.models(), app.settings(), app.createSpeaker(), new CameraFiles(app));
  }

  @Override
  void onOpened() {
    viewModel.deleteLeftovers();
    receive(getIntent());
  }

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    setContentView(R.layout.main);
    WindowSetup.padForSystemBars(findViewById(R.id.root));
    setActionBar((Toolbar) findViewById(R.id.toolbar));
    screen = new MainScreen(this, viewModel, this);
  }

  @Override
  void show(MainState state) {
    screen.show(state);
  }

  @Override
  protected void onStart() {
    super.onStart();
    viewModel.refreshModel();
  }

  @Override
  protected void onStop() {
    super.onStop();
    if (!isChangingConfigurations()) {
      viewModel.stopSpeaking();
    }
  }

  @Override
  protected void onActivityResult(int request, int result, Intent answer) {
    if (request == TAKE) {
      viewModel.onCameraResult(result == RESULT_OK);
    } else if (request == CHOOSE && result == RESULT_OK) {
      List<Uri> picked = Intents.picked(answer);
      if (!picked.isEmpty()) {
        viewModel.show(picked);
      }
    }
  }

  @Override
  public void onRequestPermissionsResult(int request, String[] permissions, int[] results) {
    if (results.length == 0) {
      return; // the question was interrupted
    }
    if (results[0] == PackageManager.PERMISSION_GRANTED) {
      takePhoto();
    } else {
      viewModel.notice(Problem.CAMERA_REFUSED);
    }
  }

  @Override
  public boolean onCreateOptionsMenu(Menu menu) {
    getMenuInflater().inflate(R.menu.main, menu);
    return true;
  }

  @Override
  public boolean onOptionsItemSelected(MenuItem item) {
    if (item.getItemId() == R.id.menu_live) {
      startActivity(new Intent(this, LiveActivity.class));
    } else if (item.getItemId() == R.id.menu_models) {
      Photo selected = viewModel.state().selected();
      startActivity(ModelsActivity.intent(this, selected == null ? null : selected.uri()));
    } else if (item.getItemId() == R.id.menu_about) {
      startActivity(new Intent(this, AboutActivity.class));
    } else {
      return super.onOptionsItemSelected(item);
    }
    return true;
  }

  @Override
  public void choosePhotos() {
    for (Intent way : Intents.choosePhotos()) {
      try {
        startActivityForResult(way, CHOOSE);
        return;
      } catch (ActivityNotFoundException absent) {
        Log.i(TAG, "no app for " + way.getAction()); // try the next one
      }
    }
    viewModel.notice(Problem.NO_PICKER);
  }

  /**
   * Starts the camera app. It needs no permission, but Android lets an app that declares the camera's
   * permission, as the live screen must, start it only with that permission.
   */
  @Override
  public void takePhoto() {
    if (checkSelfPermission(Manifest.permission.CAMERA) != PackageManager.PERMISSION_GRANTED) {
      requestPermissions(new String[] {Manifest.permission.CAMERA}, TAKE);
      return;
    }
    Uri into = viewModel.prepareCamera();
    if (into == null) {
      return;
    }
    try {
      startActivityForResult(Intents.takePhoto(into), TAKE);
    } catch (ActivityNotFoundException | SecurityException absent) {
      Log.i(TAG, "no camera app", absent);
      viewModel.onCameraResult(false);
      viewModel.notice(Problem.NO_CAMERA);
    }
  }

  @Override
  public void copy(String caption) {
    ClipboardManager clipboard = getSystemService(ClipboardManager.class);
    clipboard.setPrimaryClip(ClipData.newPlainText(getString(R.string.app_name), caption));
    if (Build.VERSION.SDK_INT < Build.VERSION_CODES.TIRAMISU) { // newer versions show their own
      Toast.makeText(this, R.string.copied, Toast.LENGTH_SHORT).show();
    }
  }

  @Override
  public void share(String caption) {
    try {
      startActivity(Intents.shareText(caption, getString(R.string.share_title)));
    } catch (ActivityNotFoundException absent) {
      Log.i(TAG, "no app to share with", absent);
      viewModel.notice(Problem.NO_SHARE_TARGET);
    }
  }

  private void receive(Intent intent) {
    if (!Intents.isShared(intent)) {
      return;
    }
    List<Uri> shared = Intents.shared(intent);
    if (shared.isEmpty()) {
      viewModel.notice(Problem.NOTHING_SHARED);
    } else {
      viewModel.show(shared);
    }
  }
}
