import test from 'ava';
import { whatElseItIs } from './not-onnx.ts';

test('a file that is not ONNX is named by its kind', t => {
  for (const [head, expected] of [
    ['', /^empty$/],
    ['version https://git-lfs.github.com/spec/v1\n', /Git LFS/],
    ['  <!DOCTYPE html><html>', /web page/],
    ['{"error":"restricted"}', /^JSON: \{"error":"restricted"\}/],
    ['PK\u0003\u0004archive', /zip/],
    ['\u0080\u0002}q', /pickle/],
    ['\u001f\u008b\u0008', /gzip/],
    ['\u0040\0\0\0\0\0\0\0{"w":', /safetensors/],
    ['\u0018\0\0\0ORTM', /own format/],
    ['\u0008\u0008\u0012\u0007pytorch', undefined],
  ] as const) {
    const other = whatElseItIs(Buffer.from(head, 'latin1'));
    if (expected === undefined) t.is(other, undefined);
    else t.regex(other ?? '', expected);
  }
});
