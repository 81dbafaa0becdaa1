/** The settings of the remove.bg interface. */
import type { EnvReader } from '#program/env.ts';
import { REMOVEBG_SIZES, type RemovebgSize } from '../services/removebg/removebg-values.ts';

export interface RemovebgConfig {
  /** Of requests that name none. */
  readonly defaultSize: RemovebgSize;
  /** How long a request waits for its job. */
  readonly waitMs: number;
  /** Origins that pages may call it from; `*` is every one. */
  readonly origins: readonly string[];
}

/** Its clients wait 20 s, and then ask again. */
const REMOVEBG_WAIT_MS = 18_000;

export function readRemovebg(reader: EnvReader): RemovebgConfig | undefined {
  const isOn = reader.boolean('MATTING_REMOVEBG_API', { default: true });
  const settings: RemovebgConfig = {
    defaultSize: reader.oneOf('MATTING_REMOVEBG_DEFAULT_SIZE', REMOVEBG_SIZES, {
      default: 'auto',
    }),
    waitMs: reader.integer('MATTING_REMOVEBG_WAIT_MS', {
      min: 1000,
      max: 120_000,
      default: REMOVEBG_WAIT_MS,
    }),
    origins: reader.list(
      'MATTING_REMOVEBG_CORS',
      '* or origins such as https://shop.example, comma-separated',
      parseOrigin,
      { default: [] },
    ),
  };
  return isOn ? settings : undefined;
}

/** As a browser sends it: scheme and host, a port where it is not the scheme's. */
function parseOrigin(text: string): string | undefined {
  if (text === '*') return text;
  const isOrigin = URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
  return isOrigin && new URL(text).origin === text ? text : undefined;
}

/** A key in a page is in the hands of everyone who opens it. */
export function warnOfOrigins({
  removebg,
}: {
  readonly removebg: RemovebgConfig | undefined;
}): string | undefined {
  if (removebg === undefined || removebg.origins.length === 0) return undefined;
  const from = removebg.origins.includes('*') ? 'every origin' : removebg.origins.join(', ');
  return `MATTING_REMOVEBG_CORS lets pages of ${from} call /v1.0: a key in a page can be read there`;
}
