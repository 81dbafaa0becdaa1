import { readFile } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import { wholeBody } from '@matting/program/whole-body.ts';
import type { NpmSource } from '@matting/serving/models/manifest.ts';
import { type Dispatcher, EnvHttpProxyAgent } from 'undici';
import { type Call, drop, follow, LEAST_SPEED, sendRequest } from './bounded-get.ts';
import { isInterruption } from './fetch-reasons.ts';
import { type NpmConfig, unusable } from './npm-config.ts';

const PUBLIC_REGISTRY = 'https://registry.npmjs.org/';
/** The short form that npm requests. */
const DOCUMENT_TYPES = 'application/vnd.npm.install-v1+json, application/json;q=0.8';
/** A manifest's package has at most 13 KB. Parsed, it may take 50 times its bytes. */
const DOCUMENT_BYTES_MAX = 1024 * 1024;
const HTTP = /^https?:$/;
/** Statuses that are worth another try. */
const PASSING: ReadonlySet<number> = new Set([408, 420, 429]);
/** Ends a fetch before its temporary file counts as abandoned (cache-files.ts). */
const SILENCE_MAX_MS = 300_000;
/** Used if npm's settings name none. npm waits longer, but a start should report sooner. */
const DEFAULTS = {
  'fetch-timeout': 30_000,
  'fetch-retries': 2,
  'fetch-retry-factor': 10,
  'fetch-retry-mintimeout': 1_000,
  'fetch-retry-maxtimeout': 4_000,
};

type Body = Dispatcher.ResponseData['body'];

interface Document {
  readonly versions?: Readonly<Record<string, { dist?: { tarball?: unknown } } | null>>;
}

export class RegistryError extends Error {
  readonly code: string;
  constructor(code: string, message = code) {
    super(message);
    this.code = code;
  }
}

export class RegistryClient {
  readonly #source: NpmSource;
  readonly #config: NpmConfig;
  readonly #registry: URL;
  readonly #call: Call;

  private constructor(source: NpmSource, config: NpmConfig, call: Call) {
    this.#source = source;
    this.#config = config;
    this.#registry = registryOf(source, config);
    this.#call = call;
  }

  /** @param env for proxies that npm's settings do not name */
  static async open(
    source: NpmSource,
    config: NpmConfig,
    env: Readonly<Record<string, string | undefined>>,
    signal: AbortSignal,
    speed = LEAST_SPEED,
  ): Promise<RegistryClient> {
    const given = text(config['https-proxy']) ?? text(config.proxy);
    const proxy = given === 'false' ? '' : given;
    const ofEnv = (name: string) => env[name] ?? env[name.toUpperCase()] ?? '';
    const silenceMs = Math.min(setting(config, 'fetch-timeout'), SILENCE_MAX_MS);
    const tls = { ...(await readTls(registryOf(source, config), config)), timeout: silenceMs };
    const dispatcher = new EnvHttpProxyAgent({
      ...{ connect: tls, requestTls: tls, proxyTls: tls },
      ...{ headersTimeout: silenceMs, bodyTimeout: silenceMs },
      httpProxy: proxy ?? ofEnv('http_proxy'),
      httpsProxy: proxy ?? ofEnv('https_proxy'),
      noProxy: [config.noproxy ?? ofEnv('no_proxy')].flat().join(','),
    });
    // The waits to connect and for headers must fit a window.
    const windowMs = Math.max(speed.windowMs, 2 * silenceMs);
    const call = { dispatcher, signal, speed: { ...speed, windowMs } };
    return new RegistryClient(source, config, call);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#call.dispatcher.destroy();
  }

  async openTarball(): Promise<Body> {
    const { package: name, version } = this.#source;
    const address = new URL(name.replace('/', '%2f'), this.#registry);
    const document = (await readJson(await this.#get(address, DOCUMENT_TYPES))) as Document | null;
    const versions = document?.versions ?? {};
    if (!Object.hasOwn(versions, version)) throw new RegistryError('ETARGET');
    const tarball = versions[version]?.dist?.tarball;
    return this.#get(this.#replaceHost(requireHttp(tarball, this.#registry)), '*/*');
  }

  /**
   * Replaces the public registry, which may be unreachable, in documents that a mirror passes on.
   */
  #replaceHost(url: URL): URL {
    const replaced = text(this.#config['replace-registry-host']) ?? 'npmjs';
    const host = replaced === 'npmjs' ? new URL(PUBLIC_REGISTRY).host : replaced;
    const applies = host === 'always' || host === url.host;
    return applies ? new URL(`${url.pathname}${url.search}`, this.#registry) : url;
  }

  async #get(url: URL, accept: string): Promise<Body> {
    let authorization = loginFor(url, this.#registry, this.#config);
    const requestOne = (to: URL) => {
      // A login does not follow to another origin.
      if (to.origin !== url.origin) authorization = undefined;
      const headers = { accept, ...(authorization && { authorization }) };
      return this.#retried(() => sendRequest(to, headers, this.#call));
    };
    const { statusCode, body } = await follow(url, requestOne, requireHttp);
    if (statusCode === 200) return body;
    drop({ body });
    throw new RegistryError(`E${statusCode}`, `it answers with HTTP ${statusCode}`);
  }

  async #retried(
    sendRequest: () => Promise<Dispatcher.ResponseData>,
  ): Promise<Dispatcher.ResponseData> {
    const of = (name: keyof typeof DEFAULTS) => setting(this.#config, name);
    for (let retry = 0; ; retry += 1) {
      const isLast = retry >= of('fetch-retries');
      try {
        const response = await sendRequest();
        if (isLast || !(response.statusCode >= 500 || PASSING.has(response.statusCode))) {
          return response;
        }
        drop(response);
      } catch (error) {
        this.#call.signal.throwIfAborted();
        const isRefused = (error as { code?: unknown }).code === 'ECONNREFUSED';
        if (isLast || !(isRefused || isInterruption(error))) throw error;
      }
      const waitMs = of('fetch-retry-mintimeout') * of('fetch-retry-factor') ** retry;
      await wait(Math.min(waitMs, of('fetch-retry-maxtimeout')), undefined, this.#call);
    }
  }
}

export function registryOf(source: NpmSource, config: NpmConfig): URL {
  const [scope, name] = source.package.split('/');
  const scoped = name === undefined ? undefined : text(config[`${scope}:registry`]);
  const address = scoped ?? text(config.registry) ?? PUBLIC_REGISTRY;
  const url = URL.parse(address.endsWith('/') ? address : `${address}/`);
  if (url !== null && HTTP.test(url.protocol)) return url;
  throw unusable('its registry is no http or https address');
}

/** The login of the address's longest part that has one, else the registry's on the same host. */
function loginFor(url: URL, registry: URL, config: NpmConfig): string | undefined {
  const scope = scopeWith(url, config, ['_authToken', '_auth', '_password']);
  if (scope === undefined) {
    const isOther = url.href === registry.href || url.host !== registry.host;
    return isOther ? undefined : loginFor(registry, registry, config);
  }
  const of = (name: string) => text(config[`${scope}:${name}`]);
  const token = of('_authToken');
  if (token !== undefined) return `Bearer ${token}`;
  const password = Buffer.from(of('_password') ?? '', 'base64').toString();
  const pair = of('_auth') ?? Buffer.from(`${of('username')}:${password}`).toString('base64');
  return `Basic ${pair}`;
}

function scopeWith(url: URL, config: NpmConfig, names: readonly string[]): string | undefined {
  let scope = `//${url.host}${url.pathname}`;
  while (scope.length > 2) {
    const current = scope;
    if (names.some(name => config[`${current}:${name}`] !== undefined)) return current;
    scope = scope.replace(/([^/]+|\/)$/, '');
  }
  return undefined;
}

/** Default: Node's authorities and NODE_EXTRA_CA_CERTS. */
async function readTls(registry: URL, config: NpmConfig): Promise<object> {
  const scope = scopeWith(registry, config, ['certfile']);
  const [ca = config.ca, cert, key] = await Promise.all(
    ['cafile', `${scope}:certfile`, `${scope}:keyfile`].map(name => readNamed(name, config)),
  );
  const pem = (one: string) => one.replaceAll('\\n', '\n');
  return {
    ...(ca !== undefined && ca !== 'null' && { ca: [ca].flat().map(pem) }),
    ...(cert !== undefined && { cert, key }),
    ...(config['strict-ssl'] === 'false' && { rejectUnauthorized: false }),
  };
}

async function readNamed(name: string, config: NpmConfig): Promise<string | undefined> {
  const file = text(config[name]);
  if (file === undefined) return undefined;
  return readFile(file, 'utf8').catch((error: Error) => {
    throw unusable(`${name}: ${error.message}`, error);
  });
}

async function readJson(body: Body): Promise<unknown> {
  const detail = `its document of this package has more than ${DOCUMENT_BYTES_MAX} bytes`;
  const tooLong = () => new RegistryError('ETOOLONG', detail);
  const bytes = await wholeBody(body, DOCUMENT_BYTES_MAX, tooLong);
  try {
    return JSON.parse(bytes.toString());
  } catch {
    throw new RegistryError('EBADDOCUMENT');
  }
}

function requireHttp(address: unknown, from: URL): URL {
  const url = typeof address === 'string' ? URL.parse(address, from.href) : null;
  if (url !== null && HTTP.test(url.protocol)) return url;
  throw new RegistryError('EBADDOCUMENT');
}

function setting(config: NpmConfig, name: keyof typeof DEFAULTS): number {
  const value = Number(config[name] ?? Number.NaN);
  return Number.isFinite(value) && value >= 0 ? value : DEFAULTS[name];
}

/** npm writes `null` for an unset value. */
function text(value: NpmConfig[string]): string | undefined {
  return typeof value === 'string' && value !== '' && value !== 'null' ? value : undefined;
}
