import test from 'ava';
import { MATTING_FIELDS } from '../submission/matting-request.ts';
import { suggestField } from './field-suggestions.ts';

const FORM = ['image_file', 'background_file', ...MATTING_FIELDS];

test('an unknown field of a form gets the suggestion of a similar name', t => {
  const meant = (name: string) => suggestField(name, FORM);
  const fields: readonly (readonly [field: string, ...names: string[]])[] = [
    ['image_file', 'imageFile', 'image-file', 'image_fil', 'Image_File'],
    ['image_base64', 'image_bas64'],
    ['image_url', 'imageUrl', 'image_ulr'],
    ['output_format', 'outputFormat', 'output_fromat'],
    ['background', 'backgroud'],
    ['background_url', 'background.url'],
    ['channels', 'channel'],
    ['crop_margin', 'cropMargin'],
    ['callback_url', 'callbackUrl'],
    ['model', 'modell'],
    ['shadow', 'shadw'],
    ['aspect_ratio', 'aspectRatio'],
  ];
  for (const [field, ...names] of fields) {
    for (const name of names) t.is(meant(name), `Did you mean ${field}?`, name);
  }
  t.regex(meant('idempotency_key'), /header Idempotency-Key/);
  t.regex(meant('api_key'), /Authorization: Bearer/);
  for (const far of [
    'despill',
    'image',
    'bg_color',
    'size',
    'ppm',
    '',
    '__proto__',
    '\ud800',
    'x'.repeat(64),
  ]) {
    t.regex(meant(far), /openapi\.json/, far);
  }
});

test('a field of another form of the body is not meant', t => {
  t.is(suggestField('imageFile', MATTING_FIELDS), 'GET /v1/openapi.json lists the fields.');
});
