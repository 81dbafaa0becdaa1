import test from 'ava';
import { MATTING_FIELDS } from '../submission/matting-request.ts';
import { meantField } from './meant-fields.ts';

const FORM = ['image_file', 'background_file', ...MATTING_FIELDS];

test('what was meant by a field that is not known, in a form', t => {
  const meant = (name: string) => meantField(name, FORM);
  const fields: readonly (readonly [field: string, ...names: string[]])[] = [
    ['image_file', 'image', 'file', 'photo', 'imageFile', 'image-file', 'image_fil', 'Image_File'],
    ['image_base64', 'image_file_b64', 'base64', 'image_bas64'],
    ['image_url', 'url', 'imageUrl', 'image_ulr'],
    ['output_format', 'format', 'export.format', 'outputFormat', 'output_fromat'],
    ['background', 'bg_color', 'background.color', 'backgroud', 'bgc'],
    ['background_url', 'bg_image_url', 'background.imageUrl'],
    ['background_file', 'bg_image_file'],
    ['size_max_megapixels', 'size'],
    ['channels', 'om', 'channel'],
    ['crop_margin', 'padding', 'cropMargin'],
    ['callback_url', 'webhook_url', 'callbackUrl'],
    ['model', 'model_name', 'modell'],
    ['shadow', 'add_shadow', 'shadow_type', 'shadow.mode', 'shadw'],
    ['enlarge', 'withoutEnlargement', 'upscale'],
    ['aspect_ratio', 'ratio', 'aspectRatio'],
    ['quality', 'q', 'jpegQuality'],
    ['roi', 'region'],
  ];
  for (const [field, ...names] of fields) {
    for (const name of names) t.is(meant(name), `Did you mean ${field}?`, name);
  }
  t.regex(meant('idempotency_key'), /header Idempotency-Key/);
  t.regex(meant('api_key'), /Authorization: Bearer/);
  for (const far of ['despill', 'ppm', '', '__proto__', '\ud800', 'x'.repeat(64)]) {
    t.regex(meant(far), /openapi\.json/, far);
  }
});

test('a field of another form of the body is not meant', t => {
  t.is(meantField('image', MATTING_FIELDS), 'Did you mean image_base64?');
  t.is(meantField('bg_image_file', MATTING_FIELDS), 'GET /v1/openapi.json lists the fields.');
});
