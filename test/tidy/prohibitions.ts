/** Rules for dangerous imports that no manifest can state. */

export interface Prohibition {
  readonly rule: string;
  readonly from: RegExp;
  readonly to: RegExp;
}

export const PROHIBITIONS: readonly Prohibition[] = [
  { rule: 'bin is imported by nothing else', from: /^(?!bin\/)/, to: /^bin\// },
  {
    rule: 'bin starts the programs, and imports neither',
    from: /^bin\//,
    to: /^(control-plane|inference-node)\//,
  },
  {
    rule: 'client is a package of its own: it imports itself and Node',
    from: /^client\//,
    to: /^(?!client\/src\/|node:)/,
  },
  {
    rule: 'only files, webhooks and the command of the client import Node, no other the command',
    from: /^client\/src\/(?!(?:files|webhooks)\.ts$|command\/)/,
    to: /^node:|^client\/src\/command\//,
  },
  {
    rule: 'engine, picture and what a model is know no gRPC',
    from: /^inference-node\/serving\/((engine|picture|models|prepared|onnx)\/|pipeline\.ts)/,
    to: /^@grpc|^inference-node\/serving\/grpc\//,
  },
  {
    // A probe runs the worker's stages in its own process, and the doctor asks for versions.
    rule: 'codecs and matte arithmetic run in the picture worker alone',
    from: /^(?!inference-node\/(serving\/picture\/(worker|codecs|finishing|matte)\/|(model-tools\/probing\/[a-z-]+|serving\/(picture\/in-process|doctor))\.ts$))/,
    to: /^inference-node\/serving\/picture\/(worker\/|codecs\/|finishing\/|matte\/|in-process\.ts)/,
  },
  {
    rule: 'only the control plane makes statements, and only its database opens one',
    from: /^(?!control-plane\/database\/|control-plane\/operations\/backup\/database-copy\.ts$)/,
    to: /^(mysql2|node:sqlite)/,
  },
  {
    rule: 'only html.ts of the pages makes and renders trees; the others take the type of one',
    from: /^(?!control-plane\/portal\/page\/html\.ts$)/,
    to: /^(htm|preact-render-to-string)$/,
  },
  {
    rule: 'only what fetches pictures, models and runtimes, and direct of the node, import an HTTP client',
    from: /^(?!control-plane\/http\/outgoing\/|inference-node\/(serving\/direct|model-tools\/(providers|weights))\/)/,
    to: /^undici/,
  },
  {
    rule: 'only what calls the runtimes, and maps their files, imports the interface to native libraries',
    from: /^(?!inference-node\/serving\/engine\/child\/(onnx-c-session|openvino-session|mapped-file)\.ts$)/,
    to: /^koffi$/,
  },
  {
    rule: 'only sign-in imports what knows identity providers and common passwords',
    from: /^(?!control-plane\/portal\/sign-in\/)/,
    to: /^(openid-client|@zxcvbn-ts\/)/,
  },
  {
    rule: 'only mails import what talks to mail servers',
    from: /^(?!control-plane\/portal\/mails\/)/,
    to: /^nodemailer/,
  },
  {
    rule: 'only program/tracing imports OpenTelemetry, where it is needed',
    from: /^(?!program\/tracing\/)/,
    to: /^@opentelemetry\//,
  },
  {
    rule: 'only the engine imports ONNX Runtime',
    from: /^(?!inference-node\/serving\/engine\/)/,
    to: /^onnxruntime-node/,
  },
  {
    rule: 'only picture imports an image codec',
    from: /^(?!inference-node\/serving\/picture\/)/,
    to: /^(sharp|wasm-vips)/,
  },
  {
    rule: 'only model-tools import what fetches packages',
    from: /^(?!inference-node\/model-tools\/)/,
    to: /^(ini|tar)$/,
  },
];
