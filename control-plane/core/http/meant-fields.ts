/** Finds the field of /v1 that a caller meant by another service's name or by a misspelt name. */
import { nearName, plainName } from '@matting/http/near-names.ts';

/**
 * Each row begins with the field that does the same here, before the names of remove.bg, Photoroom,
 * rembg and withoutBG, as `plainName` writes them. If there are several fields, the first counts
 * that the form of the body has.
 */
const OTHERS: readonly (readonly [field: string, ...names: string[]])[] = [
  ['image_base64', 'imagefileb64', 'imageb64', 'base64', 'b64', 'base64image', 'imagedata'],
  [
    'image_file',
    'imagefile',
    'image',
    'file',
    'photo',
    'picture',
    'img',
    'upload',
    'input',
    'source',
    'data',
  ],
  ['image_base64', 'image', 'file', 'photo', 'picture', 'img', 'imagefile', 'input', 'data'],
  ['image_url', 'url', 'imageuri', 'uri', 'src', 'link', 'photourl', 'inputurl'],
  ['output_format', 'format', 'output', 'outputtype', 'exportformat', 'fileformat'],
  ['background', 'bgcolor', 'bg', 'backgroundcolor', 'bgc', 'color', 'colour'],
  ['background_url', 'bgimageurl', 'bgurl', 'backgroundimageurl'],
  ['background_file', 'bgimagefile', 'backgroundimagefile', 'bgimage'],
  ['subject_box', 'box', 'bbox', 'roi', 'crop_box', 'subjectbox'],
  ['hints_file', 'trimap', 'scribbles', 'hints', 'strokes'],
  ['keep', 'foreground', 'positivepoints'],
  ['erase', 'remove', 'negativepoints'],
  ['channels', 'om', 'onlymask', 'mask', 'alpha', 'channel'],
  ['size_max_megapixels', 'size', 'resolution', 'maxsize', 'megapixels'],
  ['output_width', 'width', 'maxwidth'],
  ['output_height', 'height', 'maxheight', 'outputsize'],
  ['crop_margin', 'margin', 'padding', 'croppadding'],
  ['shadow', 'addshadow', 'shadowtype', 'shadowmode', 'dropshadow'],
  ['enlarge', 'upscale', 'noenlarge', 'withoutenlargement'],
  ['aspect_ratio', 'ratio', 'ar', 'proportions'],
  ['quality', 'q', 'jpegquality', 'compression'],
  ['roi', 'region', 'cropbox'],
  ['model', 'modelname', 'modelid', 'modelversion', 'engine', 'm'],
  ['callback_url', 'webhook', 'webhookurl', 'callback', 'notifyurl'],
  ['callback_secret', 'webhooksecret', 'secret'],
];

const HEADERS: readonly (readonly [header: string, ...names: string[]])[] = [
  ['Idempotency-Key', 'idempotencykey', 'requestid'],
  ['Authorization: Bearer <API_KEY>', 'apikey', 'xapikey', 'key', 'token', 'authorization'],
];

/** Names for an error what to send instead. @param known fields of this form of the body */
export function meantField(name: string, known: readonly string[]): string {
  const plain = plainName(name);
  const header = HEADERS.find(([, ...names]) => names.includes(plain))?.[0];
  if (header !== undefined && !known.some(one => plainName(one) === plain)) {
    return `Send it as the header ${header}.`;
  }
  const meant = namedLike(name, known);
  return meant === undefined ? 'GET /v1/openapi.json lists the fields.' : `Did you mean ${meant}?`;
}

/** Undefined: no known name is like it, and no other service has it for one of them. */
export function namedLike(name: string, known: readonly string[]): string | undefined {
  const plain = plainName(name);
  const same = known.find(one => plainName(one) === plain);
  const other = OTHERS.find(([field, ...names]) => known.includes(field) && names.includes(plain));
  return same ?? other?.[0] ?? nearName(name, known);
}
