package org.tfsparsecap.demo;

import android.app.Activity;
import android.os.Bundle;

/** An activity whose view model survives configuration changes and restores saved state. */
abstract class ViewModelActivity<S extends ViewModel.State<S>, M extends ViewModel<S>>
    extends Activity {
  M viewModel;

  /** Creates the view model when the screen is opened or restored in a new process. */
  abstract M createViewModel(CaptionApplication app);

  /** Called when the screen is opened for the first time, not when it is restored. */
  void onOpened() {}

  /** Renders a state while the activity is visible. */
  abstract void show(S state);

  @Override
  @SuppressWarnings("unchecked") // retained by the same class
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    viewModel = (M) getLastNonConfigurationInstance();
    if (viewModel == null) {
      viewModel = createViewModel(CaptionApplication.of(this));
      if (saved != null) {
        viewModel.restore(saved);
      } else {
        onOpened();
      }
    }
  }

  @Override
  protected void onStart() {
    super.onStart();
    viewModel.attach(this::show);
  }

  @Override
  protected void onStop() {
    super.onStop();
    viewModel.attach(null);
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
      viewModel.close(isFinishing());
    }
  }
}
