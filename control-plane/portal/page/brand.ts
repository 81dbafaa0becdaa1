/**
 * The operator's name, colour and logo. Buttons have the exact colour. In texts it is made darker
 * or lighter until they are legible in both themes.
 */

import { readFileSync } from 'node:fs';
import { ConfigError } from '@matting/program/config-error.ts';
import { whyUnreadable } from '@matting/program/files.ts';
import type { FastifyRequest } from 'fastify';
import { type Asset, makeAsset } from './assets.ts';

export interface BrandSettings {
  readonly name: string | undefined;
  readonly colour: string | undefined;
  readonly logoFile: string | undefined;
}

export interface Brand {
  readonly name: string | undefined;
  readonly style: Asset | undefined;
  readonly logo: Asset | undefined;
}

const brands = new WeakMap<FastifyRequest, Brand>();

export function noteBrand(request: FastifyRequest, brand: Brand | undefined): void {
  if (brand !== undefined) brands.set(request, brand);
}

export function brandOf(request: FastifyRequest): Brand | undefined {
  return brands.get(request);
}

export function assetsOf(brand: Brand | undefined): Asset[] {
  return [brand?.style, brand?.logo].filter(asset => asset !== undefined);
}

const LOGO_BYTES_MAX = 64 * 1024;

export function openBrand({ name, colour, logoFile }: BrandSettings): Brand {
  const css = colour === undefined ? undefined : Buffer.from(styleOf(colour));
  return {
    name,
    style: css && makeAsset('brand.css', css),
    logo: logoFile === undefined ? undefined : openLogo(logoFile),
  };
}

function openLogo(file: string): Asset {
  const refuse = (expected: string) => {
    throw new ConfigError([{ variable: 'MATTING_BRAND_LOGO_FILE', expected }]);
  };
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    return refuse(`a file that can be read (${whyUnreadable(error)})`);
  }
  const type = bytes.length > LOGO_BYTES_MAX ? undefined : logoTypeOf(bytes);
  if (type === undefined) {
    return refuse(`an SVG or PNG file of at most ${LOGO_BYTES_MAX / 1024} KiB`);
  }
  return makeAsset(`brand.${type}`, bytes);
}

const PNG_SIGNATURE = Buffer.from('89504e470d0a1a0a', 'hex');
/** The root element, after what XML allows before it. */
const SVG_ROOT =
  /^\uFEFF?\s*(?:<\?xml[^>]*>\s*)?(?:<!--[\s\S]*?-->\s*)*(?:<!DOCTYPE[^>[]*>\s*)?<svg[\s>]/;

function logoTypeOf(bytes: Buffer): 'png' | 'svg' | undefined {
  if (bytes.subarray(0, PNG_SIGNATURE.length).equals(PNG_SIGNATURE)) return 'png';
  return SVG_ROOT.test(bytes.toString('utf8')) ? 'svg' : undefined;
}

type Colour = readonly [number, number, number];

const WHITE: Colour = [255, 255, 255];
const BLACK: Colour = [0, 0, 0];

interface Theme {
  /** `--ground`, `--paper` and `--sunk` of style.css. */
  readonly grounds: readonly Colour[];
  /** White or black, which the colour is mixed with until it is legible. */
  readonly towards: Colour;
  readonly tintShare: number;
}

const LIGHT: Theme = {
  grounds: [colourOf('#f7f7f9'), colourOf('#ffffff'), colourOf('#f1f2f5')],
  towards: BLACK,
  tintShare: 0.1,
};
const DARK: Theme = {
  grounds: [colourOf('#0e0f13'), colourOf('#16181d'), colourOf('#1d2027')],
  towards: WHITE,
  tintShare: 0.2,
};

function styleOf(hex: string): string {
  const colour = colourOf(hex);
  const dark: Readonly<Record<string, Colour>> = coloursOf(colour, DARK);
  const variables = Object.entries(coloursOf(colour, LIGHT)).map(
    ([name, light]) => `--${name}:light-dark(${hexOf(light)},${hexOf(dark[name] ?? light)})`,
  );
  return `:root{${variables.join(';')}}\n`;
}

function coloursOf(colour: Colour, { grounds, towards, tintShare }: Theme) {
  const paper = grounds[1] as Colour;
  const tint = mixed(paper, colour, tintShare);
  const text = readable(colour, [...grounds, tint], towards);
  const ink = contrast(colour, WHITE) >= CONTRAST_MIN ? WHITE : BLACK;
  return {
    accent: text,
    'accent-tint': tint,
    fill: colour,
    'fill-hover': mixed(colour, ink === WHITE ? BLACK : WHITE, HOVER_SHARE),
    'fill-ink': ink,
  };
}

/** WCAG 2.2, 1.4.3. */
const CONTRAST_MIN = 4.5;
const HOVER_SHARE = 0.15;
const STEP = 0.02;

/** Terminates, since black on the light grounds and white on the dark ones are legible. */
function readable(colour: Colour, grounds: readonly Colour[], towards: Colour): Colour {
  for (let share = 0; share < 1; share += STEP) {
    const one = mixed(colour, towards, share);
    if (grounds.every(ground => contrast(one, ground) >= CONTRAST_MIN)) return one;
  }
  return towards;
}

function colourOf(hex: string): Colour {
  const [red = 0, green = 0, blue = 0] = Buffer.from(hex.slice(1), 'hex');
  return [red, green, blue];
}

function hexOf(colour: Colour): string {
  return `#${Buffer.from(colour).toString('hex')}`;
}

function mixed(from: Colour, to: Colour, share: number): Colour {
  const [red, green, blue] = from.map((value, channel) =>
    Math.round(value + ((to[channel] as number) - value) * share),
  ) as [number, number, number];
  return [red, green, blue];
}

/** The contrast ratio of WCAG 2.2, 1 to 21. */
function contrast(one: Colour, other: Colour): number {
  const [low = 0, high = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

function luminance(colour: Colour): number {
  const [red = 0, green = 0, blue = 0] = colour.map(value => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
