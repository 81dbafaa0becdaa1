/** Variables of several programs, so that each has one form, default and text. */
import path from 'node:path';
import type { EnvOptions, EnvReader } from './env.ts';

export function readHost(reader: EnvReader): string {
  return reader.section('Basics').string('MATTING_HOST', {
    about: `The address on which the program listens: a control plane for REST, a node for gRPC and
      its HTTP port. Set \`0.0.0.0\` to accept connections from other machines.`,
    default: '127.0.0.1',
  });
}

export const PORTS = {
  http: {
    variable: 'MATTING_PORT',
    about: 'The port of the REST API and the pages.',
    default: 8080,
  },
  registry: {
    variable: 'MATTING_REGISTRY_PORT',
    about: 'The port on which nodes register.',
    default: 50_050,
  },
  metrics: {
    variable: 'MATTING_METRICS_PORT',
    about: 'The port of `/metrics` and `/operator`.',
    default: 9464,
  },
  node: {
    variable: 'MATTING_NODE_PORT',
    about: 'The gRPC port.',
    default: 50_051,
  },
  nodeHttp: {
    variable: 'MATTING_NODE_HTTP_PORT',
    about: 'The port of `/livez`, `/readyz`, `/info` and `/metrics`. Callers must not reach it.',
    default: 50_052,
  },
} as const satisfies Readonly<Record<string, EnvOptions<number> & { variable: string }>>;

export function readPort(reader: EnvReader, name: keyof typeof PORTS): number {
  const { variable, ...declared } = PORTS[name];
  return reader.port(variable, declared);
}

export function readGivenBaseUrl(reader: EnvReader): string | undefined {
  return reader.url('MATTING_BASE_URL', {
    about: `The address at which callers reach the service. Links start with it. It has a scheme, a
      host, a port and a path only.`,
    required: 'behind a proxy, and if `MATTING_PORT` is 0',
    otherwise: 'the host and the port',
    schemes: ['http', 'https'],
    default: undefined,
  });
}

export function readDataDir(reader: EnvReader, cwd = ''): string {
  const dataDir = reader.section('Basics').string('MATTING_DATA_DIR', {
    about: `The directory of the SQLite database, stored files and generated secrets. A node looks
      there for added models only.`,
    default: 'data',
  });
  return path.resolve(cwd, dataDir);
}

export function readModelDirs(whole: EnvReader, dataDir: string, cwd = '') {
  const reader = whole.section('Models');
  const modelDir = reader.string('MATTING_MODEL_DIR', {
    about: 'The directory of fetched weights and prepared models.',
    default: 'model-cache',
  });
  const addedModelsDir = reader.string('MATTING_ADDED_MODELS_DIR', {
    about: `The directory of the manifests that \`models add\` or you put there. A manifest that
      comes with the service keeps its name.`,
    otherwise: '`models` in `MATTING_DATA_DIR`',
    default: path.join(dataDir, 'models'),
  });
  return {
    modelDir: path.resolve(cwd, modelDir),
    addedModelsDir: path.resolve(cwd, addedModelsDir),
  };
}

/** Empty: the service offers only the nodes' own plan. */
export function readModelsOffered(reader: EnvReader, isName: RegExp): readonly string[] {
  const parse = (text: string) => (isName.test(text) ? text : undefined);
  const offered = reader
    .section('Models')
    .list('MATTING_MODELS_OFFERED', 'names of plans and models', parse, {
      about: `What requests may name as \`model\`, in the order of \`GET /v1/models\`. Requests without
        a name get the first. Set the same on all control planes.
        [A node serves one](models.md#offer-it-and-choose-it): \`make start\` fetches all and starts a
        node for each. \`models fetch\` fetches them too, from the catalogue as \`models add NAME\`
        does, and exits with 78 if it does not know a name.`,
      otherwise: 'what the nodes serve',
      default: [],
    });
  return [...new Set(offered)];
}

export function readProfile(whole: EnvReader): 'small' | undefined {
  return whole.section('Engines and memory').oneOf('MATTING_PROFILE', ['small'], {
    about: `\`small\`: for a machine with [little memory](nodes.md#a-small-machine). The node has one
      engine a model and one picture worker, and no engines while it has no work.`,
    default: undefined,
  });
}
