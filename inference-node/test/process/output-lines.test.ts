import ava from 'ava';
import sinon from 'sinon';
import {
  LINE_CHARACTERS_MAX,
  LINES_MAX,
  OutputLines,
  WINDOW_MS,
} from '../../src/process/output-lines.ts';

const test = ava.serial;

function collect() {
  const lines: string[] = [];
  return { lines, output: new OutputLines(line => void lines.push(line)) };
}

test('a flood is told in a number, and lines are told again a window later', t => {
  const now = sinon.stub(performance, 'now').returns(0);
  t.teardown(() => now.restore());
  const { lines, output } = collect();
  output.push('again\n'.repeat(LINES_MAX + 5));
  t.is(lines.length, LINES_MAX);
  now.returns(WINDOW_MS);
  output.push('once more\n');
  t.deepEqual(lines.slice(LINES_MAX), ['5 more lines were left out', 'once more']);
  output.push('again\n'.repeat(LINES_MAX));
  output.end();
  t.is(lines.at(-1), '1 more lines were left out');
});

test('a line without an end is cut, and the next one is whole', t => {
  const { lines, output } = collect();
  for (let i = 0; i < 100; i++) output.push('x'.repeat(LINE_CHARACTERS_MAX));
  output.push('\nnext\n');
  t.deepEqual(lines, ['x'.repeat(LINE_CHARACTERS_MAX), 'next']);
});

test('lines come whole, however they were cut, without empty ones', t => {
  const { lines, output } = collect();
  for (const text of ['\n\n(process:1): GLib', '-WARNING **: one\r', '\n  two', '\n \n', 'last']) {
    output.push(text);
  }
  output.end();
  t.deepEqual(lines, ['(process:1): GLib-WARNING **: one', '  two', 'last']);
});
