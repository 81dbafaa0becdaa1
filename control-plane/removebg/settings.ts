import type { EnvReader } from '@matting/program/env.ts';

export type RemovebgSettings = NonNullable<ReturnType<typeof readRemovebg>>;

/** Undefined: the interface is off. */
export function readRemovebg(whole: EnvReader) {
  const reader = whole.section('Interfaces of other services');
  const isOn = reader.boolean('MATTING_REMOVEBG_API', {
    about: 'Serves the [remove.bg interface](removebg.md) under `/v1.0/`.',
    default: true,
  });
  const settings = {
    origins: reader.list(
      'MATTING_REMOVEBG_CORS',
      '* or origins such as https://shop.example',
      parseOrigin,
      {
        about: `The origins whose pages may call it. Everyone who opens such a page can read the key in
          it. Every start logs it.`,
        default: [] as readonly string[],
      },
    ),
  };
  return isOn ? settings : undefined;
}

/** Parses an Origin header: scheme and host, and a port if it is not the scheme's default. */
function parseOrigin(text: string): string | undefined {
  if (text === '*') return text;
  const isOrigin = URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
  return isOrigin && new URL(text).origin === text ? text : undefined;
}

export function warnOfOrigins(removebg: RemovebgSettings | undefined): string[] {
  if (removebg === undefined || removebg.origins.length === 0) return [];
  const from = removebg.origins.includes('*') ? 'every origin' : removebg.origins.join(', ');
  return [
    `MATTING_REMOVEBG_CORS lets pages of ${from} call /v1.0: a key in a page can be read there`,
  ];
}
