const NOISE: readonly RegExp[] = [
  /^\[ONNXRuntimeError\] : \d+ : \w+ : /,
  /^Load model from .*? failed: ?/s,
  /\/onnxruntime_src\/\S+:\d+ .*? was false\. /g,
  /\/onnxruntime_src\/\S+:\d+ [^\n]*?\)(?: const)?(?: \[with [^\]]*\])? /g,
  /(?:^|(?<= ))\w+\.cc:\d+ \w+ /g,
  /^(?:Fatal error|Exception during initialization): /,
];

const NODE_FAILED =
  /^Non-zero status code returned while running (\w+) node\. Name:'([^']*)' Status Message: /;

export function causeOf(message: string): string {
  const line = message.replace(/\s*\n\s*/g, ' ').trim();
  const [head, operator, node] = NODE_FAILED.exec(line) ?? [''];
  const words = NOISE.reduce((text, noise) => text.replace(noise, ''), line.slice(head?.length));
  const what = words.trim().slice(0, 500) || 'the runtime does not say why';
  if (operator === undefined) return what;
  return `${operator}${node ? ` ${JSON.stringify(node)}` : ''}: ${what}`;
}
