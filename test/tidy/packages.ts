/** The packages of the house: folders, and which others each imports. */
export const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  proto: [],
  program: ['proto'],
  client: [],
  bin: ['program', 'proto', 'client'],
  'control-plane/http': ['program', 'proto'],
  'control-plane/database': ['program', 'proto'],
  'control-plane/core': ['control-plane/http', 'control-plane/database', 'program', 'proto'],
  'control-plane/fleet-size': ['control-plane/core', 'control-plane/database', 'program', 'proto'],
  'control-plane/object-storage': ['control-plane/core', 'program', 'proto'],
  'control-plane/removebg': ['control-plane/core', 'control-plane/http', 'program', 'proto'],
  'control-plane/portal': [
    'control-plane/core',
    'control-plane/http',
    'control-plane/database',
    'program',
    'proto',
  ],
  'control-plane/operations': ['control-plane/core', 'control-plane/database', 'program', 'proto'],
  // The composition: what lies in the program's own folder.
  'control-plane': [
    'control-plane/core',
    'control-plane/database',
    'control-plane/fleet-size',
    'control-plane/http',
    'control-plane/object-storage',
    'control-plane/operations',
    'control-plane/portal',
    'control-plane/removebg',
    'program',
    'proto',
  ],
  'inference-node/serving': ['program', 'proto'],
  'inference-node/model-tools': ['inference-node/serving', 'program', 'proto'],
  'inference-node': ['inference-node/serving', 'inference-node/model-tools', 'program', 'proto'],
};

/** Undefined: no package of the house. */
export function packageOfFile(name: string): string | undefined {
  const folders = name.split('/');
  return [folders.slice(0, 2).join('/'), folders[0]!].find(folder => folder in PACKAGES);
}
