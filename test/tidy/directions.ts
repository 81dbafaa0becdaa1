/**
 * The import directions: for every room (a folder of the programs) the rooms it may import, and
 * what is prohibited whatever these tables say. The tables are exact: an arrow that is missing from
 * them and an arrow that is no longer used both fail the test.
 */

/**
 * Rooms relative to the program's src/; '.' is src/ itself, '#…' a folder that programs share. Every
 * room also imports itself, and those that are not shared `#contract`.
 */
export type Directions = Readonly<Record<string, readonly string[]>>;

export const CONTROL_PLANE: Directions = {
  cli: [
    '.',
    'domain',
    'secrets',
    'services/notification',
    'services/operator',
    'store',
    'store/accounts',
    'store/database',
    'store/outbox',
    '#program',
  ],
  domain: [],
  'domain/account': ['domain'],
  'domain/dispatch': ['domain'],
  http: [
    'http/account',
    'http/account/page',
    'http/answers',
    'http/checks',
    'http/connections',
    'http/headers',
    'http/removebg',
    'http/routes',
    'services',
    'services/reading',
    '#program/ports',
  ],
  'http/account/page': ['http/account/views', 'http/account/words', 'http/answers'],
  'http/account/views': ['http/account/views/components', 'http/account/words'],
  'http/account/views/components': ['http/account/views'],
  'http/account/words': [],
  'http/account': ['http/account/page', 'http/account/session', 'services/people'],
  'http/account/session': [
    'domain/account',
    'http/account/page',
    'http/account/words',
    'http/body',
    'http/checks',
    'http/connections',
    'http/headers',
    'services/people',
  ],
  'http/answers': ['domain', 'http/checks', 'http/headers', 'services/reading'],
  'http/body': ['http/headers', 'services/submission', '#program/ports'],
  'http/checks': ['domain', 'http/body', 'http/connections', 'http/headers', 'services'],
  'http/connections': ['domain', '#program', '#program/ports'],
  'http/headers': [],
  'http/openapi': ['http/answers'],
  'http/pages': [],
  'http/removebg': [
    'domain',
    'http/answers',
    'http/body',
    'http/checks',
    'http/connections',
    'http/headers',
    'services',
    'services/reading',
    'services/removebg',
    'services/submission',
  ],
  'http/routes': [
    'domain',
    'http/answers',
    'http/body',
    'http/checks',
    'http/connections',
    'http/headers',
    'http/openapi',
    'http/pages',
    'services',
    'services/operator',
    'services/reading',
    'services/submission',
  ],
  nodes: ['domain/dispatch', 'store/cluster', '#program/ports', '#program/tls', '#gen'],
  secrets: ['store/cluster', '#program'],
  services: ['domain', 'store/accounts', 'store/ledger'],
  'services/dispatch': ['domain', 'domain/dispatch', 'nodes', 'services', 'storage', 'store/jobs'],
  'services/notification': [
    'domain',
    'secrets',
    'services',
    'services/reading',
    'sources/guard',
    'store/outbox',
  ],
  'services/operator': ['domain', 'store/accounts', 'store/cluster', 'store/jobs'],
  'services/people': ['services', 'store/people'],
  'services/reading': ['domain', 'services', 'storage', 'store/jobs'],
  'services/removebg': [
    'services',
    'services/submission',
    'sources',
    'sources/guard',
    '#contract/finishing',
  ],
  'services/submission': [
    'domain',
    'secrets',
    'services',
    'sources',
    'sources/guard',
    'storage',
    'store/jobs',
    '#contract/finishing',
  ],
  'services/sweeping': ['storage', 'store/cluster', 'store/jobs', 'store/outbox'],
  'services/usage': ['services/sweeping', 'store/usage'],
  sources: ['sources/guard', 'storage', '#contract/finishing'],
  'sources/guard': ['domain'],
  storage: ['#program'],
  store: [
    'store/accounts',
    'store/cluster',
    'store/database',
    'store/jobs',
    'store/ledger',
    'store/outbox',
    'store/people',
    'store/usage',
  ],
  'store/accounts': ['domain', 'store/database'],
  'store/cluster': ['store/database'],
  'store/database': ['domain', 'domain/account', 'store/database/migrations', '#program'],
  'store/database/migrations': ['store/database'],
  'store/jobs': [
    'domain',
    'domain/dispatch',
    'store/accounts',
    'store/database',
    'store/ledger',
    'store/usage',
  ],
  'store/ledger': ['domain', 'store/database'],
  'store/outbox': ['domain', 'store/database'],
  'store/people': ['domain/account', 'store/database'],
  'store/usage': ['domain/account', 'store/database', 'store/jobs', 'store/ledger'],
};

export const INFERENCE_NODE: Directions = {
  '.': [
    'engine/choice',
    'engine/pool',
    'grpc',
    'models',
    'models/preparing',
    'picture',
    'picture/pool',
    '#program',
    '#program/ports',
    '#program/tls',
    '#gen',
  ],
  cli: [
    '.',
    'engine/choice',
    'models',
    'models/onnx',
    'models/preparing',
    'models/weights',
    'picture',
    'picture/codecs',
    'picture/matte',
    'picture/worker',
    '#program',
  ],
  engine: ['models', 'process'],
  'engine/child': ['engine', 'models', 'process'],
  'engine/choice': ['engine', 'models', 'models/preparing'],
  'engine/pool': ['engine', 'models', 'process'],
  grpc: [
    '.',
    'engine/pool',
    'models',
    'picture',
    'picture/pool',
    '#program',
    '#program/ports',
    '#program/tls',
    '#gen',
  ],
  models: ['#program'],
  'models/onnx': ['models'],
  'models/onnx/passes': ['models', 'models/onnx'],
  'models/preparing': ['models', 'models/onnx', 'models/onnx/passes', 'models/weights', '#program'],
  'models/weights': ['models'],
  picture: ['models'],
  'picture/codecs': [
    'picture',
    'picture/codecs/colour',
    'picture/codecs/files',
    '#contract/image-header',
  ],
  'picture/codecs/colour': ['#contract/image-header'],
  'picture/codecs/files': ['picture', 'picture/codecs/colour'],
  'picture/finishing': ['picture', 'picture/matte'],
  'picture/matte': ['models', 'picture'],
  'picture/pool': ['models', 'picture', 'process'],
  'picture/worker': ['picture', 'picture/codecs', 'picture/finishing', 'picture/matte', 'process'],
  process: [],
};

export const SHARED: Directions = {
  bin: ['bin/remove', '#program', '#contract/finishing'],
  'bin/remove': ['bin', 'client/src'],
  'client/src': [],
  '#program': [],
  '#program/ports': ['#contract'],
  '#program/tls': ['#program'],
  '#contract': ['#contract/image-header', '#gen'],
  '#contract/finishing': ['#contract'],
  '#contract/image-header': ['#contract'],
};

/** It makes the program's long-lived objects and may import every other room. */
export const COMPOSITION_ROOT = 'control-plane/src';

/** What a file that matches `from` never imports, whatever the tables above say. */
export interface Prohibition {
  readonly rule: string;
  readonly from: RegExp;
  readonly to: RegExp;
}

export const PROHIBITIONS: readonly Prohibition[] = [
  {
    rule: 'the control plane is imported by nothing else',
    from: /^(?!control-plane\/)/,
    to: /^control-plane\//,
  },
  {
    rule: 'the inference node is imported by nothing else',
    from: /^(?!inference-node\/)/,
    to: /^inference-node\//,
  },
  { rule: 'bin is imported by nothing else', from: /^(?!bin\/)/, to: /^bin\// },
  {
    rule: 'client is a package of its own: it imports itself and, in files.ts alone, Node',
    from: /^client\//,
    to: /^(?!client\/src\/|node:fs\/promises$)/,
  },
  {
    rule: 'only files.ts of the client imports Node',
    from: /^client\/src\/(?!files\.ts$)/,
    to: /^node:/,
  },
  {
    rule: 'the two programs do not import the client',
    from: /^(control-plane|inference-node)\//,
    to: /^client\//,
  },
  {
    rule: 'proto imports no other room of the house',
    from: /^proto\//,
    to: /^(program|client|control-plane|inference-node|bin)\//,
  },
  {
    rule: 'program imports proto alone',
    from: /^program\//,
    to: /^(client|control-plane|inference-node|bin)\//,
  },
  {
    rule: 'domain is pure: it imports itself and the contract',
    from: /^control-plane\/src\/domain\//,
    to: /^(?!(control-plane\/src\/domain|proto\/contract)\/)/,
  },
  {
    rule: 'http gets what it needs through services',
    from: /^control-plane\/src\/http\//,
    to: /^control-plane\/src\/(store|nodes|storage|sources|secrets)\//,
  },
  {
    rule: 'services know no http',
    from: /^control-plane\/src\/services\//,
    to: /^control-plane\/src\/http\//,
  },
  {
    rule: 'store, nodes, storage and sources know no services and no http',
    from: /^control-plane\/src\/(store|nodes|storage|sources)\//,
    to: /^control-plane\/src\/(services|http)\//,
  },
  {
    rule: 'engine, picture and models know no gRPC',
    from: /^inference-node\/src\/((engine|picture|models)\/|pipeline\.ts)/,
    to: /^@grpc|^inference-node\/src\/grpc\//,
  },
  {
    // `models check` takes one picture through the worker's stages in its own process.
    rule: 'codecs and matte arithmetic run in the picture worker alone',
    from: /^(?!inference-node\/src\/(picture\/(worker|codecs|finishing|matte)\/|cli\/models-check\.ts$))/,
    to: /^inference-node\/src\/picture\/(worker|codecs|finishing|matte)\//,
  },
  {
    rule: 'only the store imports a database library',
    from: /^(?!control-plane\/src\/store\/)/,
    to: /^(kysely|mysql2|node:sqlite)/,
  },
  {
    rule: 'only http imports fastify',
    from: /^(?!control-plane\/src\/http\/)/,
    to: /^(fastify|@fastify\/)/,
  },
  {
    rule: 'only html.ts of the pages makes and renders trees; the others take the type of one',
    from: /^(?!control-plane\/src\/http\/account\/views\/html\.ts$)/,
    to: /^(htm|preact-render-to-string)$/,
  },
  {
    rule: 'only sources import an HTTP client',
    from: /^(?!control-plane\/src\/sources\/)/,
    to: /^undici/,
  },
  {
    rule: 'only the engine imports ONNX Runtime',
    from: /^(?!inference-node\/src\/engine\/)/,
    to: /^onnxruntime-node/,
  },
  {
    rule: 'only picture imports an image codec',
    from: /^(?!inference-node\/src\/picture\/)/,
    to: /^(sharp|wasm-vips)/,
  },
  {
    rule: 'only models import what fetches packages',
    from: /^(?!inference-node\/src\/models\/)/,
    to: /^(pacote|tar|@npmcli\/)/,
  },
];
