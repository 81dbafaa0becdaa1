/** The order of a package's folders: each imports only earlier ones. */
import path from 'node:path';
import type { SourceFile } from './source-files.ts';

/** Folders and top-level files, lowest first. */
export interface Streets {
  readonly folder: string;
  /** Folders or files of the package; unlisted files stand above all. */
  readonly order: readonly string[];
}

export const STREETS: readonly Streets[] = [
  {
    folder: 'control-plane/accounts',
    order: ['rates account-store.ts audit-log.ts', 'ledger', 'keys'],
  },
  {
    folder: 'control-plane/core',
    order: [
      'migrations secrets',
      'jobs corrections audit',
      'models fetching',
      'results webhooks queue deletion groups',
      'attempts dispatch submission',
      'retention settings.ts stores.ts',
      'operator http metrics cli',
    ],
  },
  {
    folder: 'inference-node/serving',
    order: [
      'models process',
      'onnx providers admission.ts prepared',
      'engine picture',
      'pipeline.ts node-state.ts metrics.ts',
      'start grpc',
      'settings.ts',
    ],
  },
  {
    folder: 'control-plane/portal',
    order: [
      'words migrations session',
      'page mails',
      'documents jobs playground keys alerts usage orders',
      'people sign-in operator-pages',
    ],
  },
];

/** Imports of later folders, and folders missing in the order. */
export function upwardImportsOf(
  { folder, order }: Streets,
  sources: readonly Pick<SourceFile, 'name' | 'imports'>[],
): string[] {
  const words = order.flatMap(line => line.split(' '));
  /** Undefined: outside of the package. Unlisted files come last. */
  const storeyOf = (name: string): number | undefined => {
    if (!name.startsWith(`${folder}/`)) return undefined;
    const [first = '', ...rest] = path.posix.relative(folder, name).split('/');
    const index = words.indexOf(first);
    if (index < 0 && rest.length > 0) return Number.NaN;
    return index < 0 ? words.length : index;
  };
  return sources.flatMap(({ name, imports }) => {
    const own = storeyOf(name);
    if (own === undefined) return [];
    if (Number.isNaN(own)) return [`${name}: the order does not name its folder`];
    return imports
      .filter(to => {
        const other = storeyOf(to);
        return other !== undefined && !(other <= own);
      })
      .map(to => `${name} -> ${to}`);
  });
}
