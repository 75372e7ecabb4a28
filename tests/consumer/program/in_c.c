/* Imports a model of another format with the installed C interface, and saves it.

   usage: in_c SOURCE OUT. Without arguments, says whether the library has text and import. */
#include <bowline_c.h>
#include <stdio.h>

int main(int argc, char** argv) {
  const bowline_api* bl = bowline_get_api(BOWLINE_API_VERSION);
  const bowline_import_api* importer = bowline_get_import_api(BOWLINE_API_VERSION);
  bowline_model* model = NULL;
  bowline_error* error = NULL;
  if (argc < 3) {
    printf("text %d, import %d\n", bowline_get_text_api(BOWLINE_API_VERSION) != NULL,
           importer != NULL);
    return 0;
  }
  if (importer->import_model(argv[1], NULL, &model, NULL, &error) == BOWLINE_OK &&
      bl->model_save_compacted(model, argv[2], NULL, &error) == BOWLINE_OK) {
    bl->model_close(model, &error);
  }
  fprintf(stderr, "%s\n", bl->error_message(error));
  return bl->error_code(error);
}
