/** The supervisor's own settings. The programs that it starts check theirs themselves. */
import path from 'node:path';
import { EnvReader } from '@matting/program/env.ts';
import {
  PORTS,
  readDataDir,
  readGivenBaseUrl,
  readHost,
  readModelDirs,
  readModelsOffered,
  readProfile,
} from '@matting/program/shared-settings.ts';
import { readNodeTokens } from '@matting/program/tokens.ts';
import { SELECTABLE_NAME } from '@matting/proto/contract/selectable-names.ts';

export const ROOT = path.resolve(import.meta.dirname, '..');
export const CONTROL_PLANE_CLI = path.join(ROOT, 'control-plane/cli.ts');
export const NODE_CLI = path.join(ROOT, 'inference-node/cli.ts');

export type Ports = Readonly<Record<keyof typeof PORTS, number>>;

export interface NodeSettings {
  /** undefined: the setting in `env`. */
  readonly model: string | undefined;
  readonly port: number;
  readonly httpPort: number;
}

export interface SupervisorConfig {
  /** For the REST API. Everything else listens on loopback. */
  readonly host: string;
  readonly ports: Ports;
  /** One for each offered plan and model, the default first. */
  readonly nodes: readonly [NodeSettings, ...NodeSettings[]];
  readonly dataDir: string;
  readonly modelDir: string;
  readonly addedModelsDir: string;
  /** undefined: generated, unless the programs read it from a file. */
  readonly nodeToken: string | undefined;
  /** undefined: the node uses the whole machine. */
  readonly profile: 'small' | undefined;
  /** Without a trailing slash. undefined: the listening address. */
  readonly baseUrl: string | undefined;
  /** For the programs. */
  readonly env: Readonly<Record<string, string>>;
}

const PORT_MAX = 65_535;

/** @throws ConfigError names every unusable variable */
export function loadSupervisorConfig(env: NodeJS.ProcessEnv = process.env): SupervisorConfig {
  const reader = new EnvReader(env);
  const dataDir = readDataDir(reader);
  const ports = readPorts(reader);
  const [first, ...others] = readModelsOffered(reader, SELECTABLE_NAME);
  const own = env.MATTING_MODEL || env.MATTING_QUALITY || undefined;
  if (first !== undefined && own !== undefined && first !== own) {
    const expected = `a list that begins with ${own}, which requests without a name get`;
    reader.problem('MATTING_MODELS_OFFERED', expected);
  }
  const given = first !== undefined && own === undefined ? { MATTING_MODEL: first } : {};
  const config: SupervisorConfig = {
    host: readHost(reader),
    ports,
    nodes: assignNodePorts(reader, others, ports),
    dataDir,
    ...readModelDirs(reader, dataDir),
    profile: readProfile(reader),
    nodeToken: readNodeTokens(reader).items[0],
    baseUrl: readGivenBaseUrl(reader)?.replace(/\/+$/, ''),
    env: Object.fromEntries(
      Object.entries({ ...env, ...given }).filter(
        (entry): entry is [string, string] => entry[1] !== undefined,
      ),
    ),
  };
  reader.requireValid();
  return config;
}

/** Further nodes listen on the ports above the first one's. */
function assignNodePorts(
  reader: EnvReader,
  others: readonly string[],
  ports: Ports,
): readonly [NodeSettings, ...NodeSettings[]] {
  const highest = Math.max(ports.node, ports.nodeHttp);
  const further = others.map((model, index) => {
    return { model, port: highest + 2 * index + 1, httpPort: highest + 2 * index + 2 };
  });
  const taken = new Set(Object.values(ports));
  const above = further.flatMap(({ port, httpPort }) => [port, httpPort]);
  const wrong = above.find(port => port > PORT_MAX || taken.has(port));
  if (wrong !== undefined) {
    const expected = `a port with ${above.length} free ones above it for other models; ${wrong} is not free`;
    reader.problem(PORTS.nodeHttp.variable, expected);
  }
  return [{ model: undefined, port: ports.node, httpPort: ports.nodeHttp }, ...further];
}

/** Directories of data and models, not secret. */
const DIRECTORY_VARIABLES = [
  'MATTING_DATA_DIR',
  'MATTING_MODEL_DIR',
  'MATTING_PROVIDER_DIR',
] as const;

/** A command for another terminal, which lacks these settings. */
export function commandLine({ env }: Pick<SupervisorConfig, 'env'>, command: string): string {
  const directories = DIRECTORY_VARIABLES.flatMap(name => {
    const directory = env[name];
    return directory ? [`${name}=${quoted(path.resolve(directory))}`] : [];
  });
  const line = [...directories, `npm run matting -- ${command}`].join(' ');
  // The value may contain a password. The shell ignores the comment.
  return env.MATTING_DATABASE_URL ? `${line}   # set MATTING_DATABASE_URL first` : line;
}

/** For a POSIX shell. */
function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The programs find each other by these, so they must be fixed and different. */
function readPorts(reader: EnvReader): Ports {
  const read = (name: keyof Ports) => {
    const { variable, ...declared } = PORTS[name];
    return reader.integer(variable, { min: 1, max: PORT_MAX, ...declared });
  };
  const ports: Ports = {
    http: read('http'),
    registry: read('registry'),
    metrics: read('metrics'),
    node: read('node'),
    nodeHttp: read('nodeHttp'),
  };
  const names = Object.keys(ports) as (keyof Ports)[];
  for (const [index, name] of names.entries()) {
    const other = names.slice(0, index).find(before => ports[before] === ports[name]);
    if (other === undefined) continue;
    reader.problem(PORTS[name].variable, `another port than ${PORTS[other].variable}`);
  }
  return ports;
}
