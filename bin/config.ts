/**
 * The supervisor's part of the environment. It reads little, since the programs that it starts
 * check their own variables: only what it needs to give each of them its part of one machine.
 */
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

export type Ports = Readonly<Record<keyof typeof PORTS, number>>;

/** One node, which serves one plan or model. */
export interface NodePlace {
  /** Undefined: what `env` says. */
  readonly model: string | undefined;
  readonly port: number;
  readonly httpPort: number;
}

export interface SupervisorConfig {
  /** The REST API listens here. Everything else of the single machine stays on loopback. */
  readonly host: string;
  readonly ports: Ports;
  /** One for each plan and model that is offered, the default first. */
  readonly nodes: readonly [NodePlace, ...NodePlace[]];
  /** Absolute. */
  readonly dataDir: string;
  /** Absolute. */
  readonly modelDir: string;
  /** Absolute. */
  readonly addedModelsDir: string;
  /** Undefined: one is made, unless the programs have it in a file. */
  readonly nodeToken: string | undefined;
  /** Undefined: the node takes what the machine has. */
  readonly profile: 'small' | undefined;
  /** Links start with it. It has no trailing slash. undefined: the address that it listens on. */
  readonly baseUrl: string | undefined;
  /** The environment as given, handed on to the programs, and the default of what is offered. */
  readonly env: Readonly<Record<string, string>>;
}

const PORT_MAX = 65_535;

/** @throws ConfigError naming every variable that is not usable. */
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
    nodes: placeNodes(reader, others, ports),
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

/** The further nodes listen on the ports above those of the first one. */
function placeNodes(
  reader: EnvReader,
  others: readonly string[],
  ports: Ports,
): readonly [NodePlace, ...NodePlace[]] {
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

/** Where the data and the models lie. None holds a secret. */
const PLACES = ['MATTING_DATA_DIR', 'MATTING_MODEL_DIR', 'MATTING_PROVIDER_DIR'] as const;

/** A command of `matting` that works in another terminal, which lacks these settings. */
export function commandLine({ env }: Pick<SupervisorConfig, 'env'>, command: string): string {
  const places = PLACES.flatMap(name => {
    const place = env[name];
    return place ? [`${name}=${quoted(path.resolve(place))}`] : [];
  });
  const line = [...places, `npm run matting -- ${command}`].join(' ');
  // Its value may hold a password. A shell takes what follows for a comment.
  return env.MATTING_DATABASE_URL ? `${line}   # set MATTING_DATABASE_URL first` : line;
}

/** For a shell of POSIX. */
function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The two programs find each other by these: the system cannot choose one, nor two be the same. */
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
