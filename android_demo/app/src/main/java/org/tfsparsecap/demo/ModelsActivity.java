package org.tfsparsecap.demo;

import android.app.Activity;
import android.content.ActivityNotFoundException;
import android.content.Context;
import android.content.Intent;
import android.net.Uri;
import android.os.Bundle;
import android.util.Log;
import android.widget.Toolbar;
import java.util.List;

/** The models side by side: choose one, open another one, remove it again. */
public final class ModelsActivity extends Activity {
  static final int OPEN = 1;

  private static final String TAG = "ModelsActivity";

  private ModelsViewModel viewModel;
  private ModelsScreen screen;

  /** @param photo that the models are compared on; null for none. */
  static Intent intent(Context context, Uri photo) {
    return new Intent(context, ModelsActivity.class).setData(photo);
  }

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    setContentView(R.layout.models);
    Edges.keepFree(findViewById(R.id.root));
    Bars.withWayBack(this, (Toolbar) findViewById(R.id.bar));
    viewModel = (ModelsViewModel) getLastNonConfigurationInstance();
    if (viewModel == null) {
      CaptionApplication app = CaptionApplication.of(this);
      viewModel = new ModelsViewModel(app.engine(), app.models(), getIntent().getData());
      if (saved != null) {
        viewModel.restore(saved);
      }
    }
    screen = new ModelsScreen(this, viewModel, this::chooseModel);
  }

  @Override
  protected void onStart() {
    super.onStart();
    viewModel.attach(screen::show);
  }

  @Override
  protected void onStop() {
    super.onStop();
    viewModel.attach(null);
    screen.closeQuestion();
  }

  @Override
  protected void onSaveInstanceState(Bundle out) {
    super.onSaveInstanceState(out);
    viewModel.save(out);
  }

  @Override
  public Object onRetainNonConfigurationInstance() {
    return viewModel;
  }

  @Override
  protected void onDestroy() {
    super.onDestroy();
    if (!isChangingConfigurations()) {
      viewModel.close();
    }
  }

  @Override
  protected void onActivityResult(int request, int result, Intent answer) {
    List<Uri> picked = Intents.picked(answer);
    if (request == OPEN && result == RESULT_OK && !picked.isEmpty()) {
      viewModel.open(picked.get(0));
    }
  }

  private void chooseModel() {
    try {
      startActivityForResult(Intents.chooseModel(), OPEN);
    } catch (ActivityNotFoundException absent) {
      Log.i(TAG, "no app to choose files with", absent);
      viewModel.notice(Problem.NO_FILE_PICKER);
    }
  }
}
