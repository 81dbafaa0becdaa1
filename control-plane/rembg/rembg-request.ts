import type { IncomingMessage } from 'node:http';
import { oneOf, requireShort, type Texts } from '@matting/compat/field-values.ts';
import {
  type FormBody,
  type FormFields,
  ignoredOf,
  noteIgnored,
  readFormBody,
} from '@matting/compat/picture-form.ts';
import type { PictureRequest } from '@matting/compat/picture-route.ts';
import type { RequestUploads } from '@matting/core/submission/image-uploads.ts';
import { requireImageUrl } from '@matting/core/submission/image-url.ts';
import { givenTwice, OVERLONG, parametersOf, type TextValue } from '@matting/http/body-fields.ts';
import type { OutgoingPolicy } from '@matting/http/outgoing/outgoing-url.ts';
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import type { Background, Finishing } from '@matting/proto/contract/finishing.ts';
import { URL_LENGTH_MAX } from '@matting/proto/contract/limits.ts';

const PARAMETERS = ['model', 'a', 'af', 'ab', 'ae', 'om', 'ppm', 'bgc'] as const;
type Parameter = (typeof PARAMETERS)[number] | 'url';
const WITHOUT_EFFECT: readonly Parameter[] = ['a', 'af', 'ab', 'ae', 'ppm'];

export const REMBG_FIELDS: FormFields<Parameter, 'file'> = {
  texts: PARAMETERS,
  pictures: { file: 'image' },
  manyImages: givenTwice,
};

export interface RembgBody extends FormBody<Parameter, 'file'> {
  /** GET sends the picture by `url`, POST by `file`. */
  readonly source: 'url' | 'file';
}

/**
 * rembg reads a GET's parameters from the query, and a POST's from the form and partly from the
 * query. Here both methods may use both.
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE
 */
export async function readRembg(
  request: IncomingMessage,
  uploads: RequestUploads,
): Promise<RembgBody> {
  const source = request.method === 'POST' ? 'file' : 'url';
  const texts = new Map<Parameter, TextValue>();
  const unknown = new Set<string>();
  const known: readonly Parameter[] = source === 'url' ? [...PARAMETERS, 'url'] : PARAMETERS;
  for (const { name, text } of parametersOf(request.url ?? '')) {
    const parameter = known.find(one => one === name);
    if (parameter === undefined) noteIgnored(unknown, name);
    else if (texts.has(parameter)) throw givenTwice(parameter);
    else if (text !== '') texts.set(parameter, text.length > URL_LENGTH_MAX ? OVERLONG : text);
  }
  if (source === 'url') return { source, texts, pictures: new Set(), unknown: [...unknown] };
  const form = await readFormBody(request, uploads, REMBG_FIELDS);
  for (const name of form.unknown) noteIgnored(unknown, name);
  return { ...form, source, texts: new Map([...texts, ...form.texts]), unknown: [...unknown] };
}

const NO_SOURCE = 'Field required';

export function isMissingSource({ fieldErrors }: ContractError): boolean {
  return fieldErrors[0]?.detail === NO_SOURCE;
}

/**
 * @param offered names of plans and models
 * @throws ContractError INVALID_IMAGE_SOURCE, INVALID_PARAMETER
 */
export function rembgRequestOf(
  { source, texts: given, pictures, unknown }: RembgBody,
  offered: readonly string[],
  policy: OutgoingPolicy,
): PictureRequest {
  if (!given.has('url') && !pictures.has('file')) {
    const fieldErrors = [{ field: source, detail: NO_SOURCE }];
    throw new ContractError('INVALID_IMAGE_SOURCE', `${source} is missing. Send an image.`, {
      fieldErrors,
    });
  }
  const url = given.get('url');
  const imageUrl = url === undefined ? undefined : requireImageUrl(url, policy);
  const texts = requireShort(given);
  const isMask = isOn(texts, 'om');
  const background = backgroundOf(texts);
  for (const name of ['a', 'ppm'] as const) isOn(texts, name);
  for (const name of ['af', 'ab', 'ae'] as const) requireWhole(texts, name);
  return {
    request: {
      imageUrl,
      outputFormat: 'png',
      model: modelOf(texts.get('model'), offered),
      channels: isMask ? 'alpha' : 'rgba',
      finishing: finishingOf(isMask, background),
      backgroundUrl: undefined,
      callback: undefined,
    },
    backgroundGiven: false,
    ignored: ignoredOf({ unknown, texts }, WITHOUT_EFFECT),
  };
}

function finishingOf(isMask: boolean, background: Background | undefined): Finishing | undefined {
  if (isMask) return {};
  return background && { background };
}

const ON = ['true', '1', 'on', 'yes', 'y', 't'] as const;

function isOn(texts: Texts<Parameter>, name: Parameter): boolean {
  const value = oneOf(texts, name, ['false', '0', 'off', 'no', 'n', 'f', ...ON]);
  return ON.some(known => known === value);
}

/** `ae` is a size, `af` and `ab` are opacities. */
function requireWhole(texts: Texts<Parameter>, name: 'af' | 'ab' | 'ae'): void {
  const text = texts.get(name) ?? '0';
  const max = name === 'ae' ? 10_000 : 255;
  if (/^\d{1,5}$/.test(text) && Number(text) <= max) return;
  throw invalidParameter(name, `must be a whole number from 0 to ${max}`);
}

/** Parses `r,g,b` or `r,g,b,a`. Undefined also for a transparent colour. */
function backgroundOf(texts: Texts<Parameter>): Background | undefined {
  const text = texts.get('bgc');
  if (text === undefined) return undefined;
  const values = text.split(',', 5).map(part => part.trim());
  const isColour = values.every(part => /^\d{1,3}$/.test(part) && Number(part) <= 255);
  if (!isColour || values.length < 3 || values.length > 4) {
    throw invalidParameter('bgc', 'must be r,g,b,a, each from 0 to 255');
  }
  const [red = 0, green = 0, blue = 0, alpha = 255] = values.map(Number);
  if (alpha === 0) return undefined;
  return { kind: 'colour', rgba: ((red << 24) | (green << 16) | (blue << 8) | alpha) >>> 0 };
}

/**
 * rembg's names for models that have other names here. A model of rembg's own name has precedence.
 */
const NAMES_HERE: ReadonlyMap<string, string> = new Map([
  ['isnet-general-use', 'isnet'],
  ['birefnet-general-lite', 'birefnet-lite'],
  ['u2net_human_seg', 'u2net-human-seg'],
  ['bria-rmbg', 'rmbg-2-0'],
]);

/** rembg's default. If the service does not offer it, its own default replaces it. */
const REMBG_DEFAULT = 'u2net';

/** Keeps the caller's name if nothing matches, so that the error quotes it. */
function modelOf(name: string | undefined, offered: readonly string[]): string | undefined {
  if (name === REMBG_DEFAULT && !offered.includes(name)) return undefined;
  const here = NAMES_HERE.get(name ?? '');
  return here !== undefined && !offered.includes(name ?? '') && offered.includes(here)
    ? here
    : name;
}
