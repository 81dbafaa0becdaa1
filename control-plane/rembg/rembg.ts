import { readCompat } from '@matting/compat/settings.ts';
import type { Package } from '@matting/core/package.ts';
import type { EnvReader } from '@matting/program/env.ts';

interface RembgSettings {
  /** The key for requests without one. Undefined: the service refuses them. */
  readonly standInKeyId: string | undefined;
}

export const rembg: Package<RembgSettings | undefined> = {
  name: 'rembg',
  readSettings: readRembg,
  warnings: settings =>
    settings?.standInKeyId === undefined
      ? []
      : [
          'MATTING_COMPAT_REMBG_ACCOUNT lets programs of this machine and of private networks make ' +
            `pictures without a key, at the expense of mk_${settings.standInKeyId}`,
        ],
  async open({ services, stores, config }, settings) {
    if (settings === undefined) return {};
    const { rembgInterface } = await import('./rembg-interface.ts');
    return { httpInterface: rembgInterface(services, stores, { ...config, ...settings }) };
  },
};

function readRembg(reader: EnvReader): RembgSettings | undefined {
  const isOn = readCompat(reader, 'rembg');
  const standInKeyId = reader
    .section('Interfaces of other services')
    .parsed(
      'MATTING_COMPAT_REMBG_ACCOUNT',
      'the public part of an API key: mk_ and 12 characters, without its secret',
      text => /^mk_([0-9A-Za-z]{12})$/.exec(text)?.[1],
      {
        about: `The API key whose account pays for requests
        [without a key](rembg.md#without-a-key), which programs of this machine and of private
        networks may send to \`/compat/rembg\`. Every start logs it.`,
        default: undefined,
      },
    );
  return isOn ? { standInKeyId } : undefined;
}
