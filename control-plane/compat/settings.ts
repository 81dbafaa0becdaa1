import type { EnvReader } from '@matting/program/env.ts';

const INTERFACES = ['photoroom', 'rembg'] as const;

export function readCompat(reader: EnvReader, name: (typeof INTERFACES)[number]): boolean {
  const on = reader
    .section('Interfaces of other services')
    .list(
      'MATTING_COMPAT',
      INTERFACES.join(' and '),
      text => INTERFACES.find(known => known === text),
      {
        about: `The interfaces that the service also answers in, under \`/compat/\`:
        [Photoroom](photoroom.md), [rembg](rembg.md).`,
        default: [] as readonly string[],
      },
    );
  return on.includes(name);
}
