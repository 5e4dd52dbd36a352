// Unpack archives with Pyodide, compile their modules, and pack all of it into one archive.
// A page then compiles nothing, which takes most of the time of a first import.
// node tools/browser/compile.mjs PYODIDE TARGET ARCHIVE...
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, target, ...archives] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(path.join(folder, "pyodide.mjs")));
const pyodide = await loadPyodide({ indexURL: folder });
for (const archive of archives) {
  const bytes = new Uint8Array(fs.readFileSync(archive));
  pyodide.unpackArchive(bytes, "zip", { extractDir: "/packed" });
}
pyodide.runPython(`
import compileall, shutil
from py_compile import PycInvalidationMode

mode = PycInvalidationMode.UNCHECKED_HASH  # the times of files are not kept
if not compileall.compile_dir("/packed", stripdir="/packed", quiet=1, invalidation_mode=mode):
    raise SystemExit("a module does not compile")
shutil.make_archive("/packed", "zip", "/packed")
`);
fs.writeFileSync(target, pyodide.FS.readFile("/packed.zip"));
process.exit(0);
