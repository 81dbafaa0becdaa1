/** What is prohibited whatever the tables of directions.ts say. */

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
    // The pages on an account's people call the stores that they are given.
    from: /^control-plane\/src\/http\/(?!app-services\.ts$|account\/(people|profile)\.ts$)/,
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
    // `models check` takes one picture through the worker's stages in its own process, and the
    // doctor asks for versions.
    rule: 'codecs and matte arithmetic run in the picture worker alone',
    from: /^(?!inference-node\/src\/(picture\/(worker|codecs|finishing|matte)\/|(cli\/models-check|doctor\/examine)\.ts$))/,
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
    from: /^(?!control-plane\/src\/http\/account\/page\/html\.ts$)/,
    to: /^(htm|preact-render-to-string)$/,
  },
  {
    rule: 'only sources, and direct of the node, import an HTTP client',
    from: /^(?!control-plane\/src\/sources\/|inference-node\/src\/direct\/)/,
    to: /^undici/,
  },
  {
    rule: 'only identity imports what knows identity providers and common passwords',
    from: /^(?!control-plane\/src\/identity\/)/,
    to: /^(openid-client|@zxcvbn-ts\/)/,
  },
  {
    rule: 'only mail imports what talks to mail servers',
    from: /^(?!control-plane\/src\/mail\/)/,
    to: /^nodemailer/,
  },
  {
    rule: 'only program/tracing imports OpenTelemetry, where it is needed',
    from: /^(?!program\/tracing\/)/,
    to: /^@opentelemetry\//,
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
