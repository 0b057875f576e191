#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/kokkos_cuda_headers makes of settings in the package's form, and of a package that has another one."""
import pathlib
import sys
import tempfile
import types

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "kokkos_cuda_headers"
script = types.ModuleType("kokkos_cuda_headers")
exec(compile(SCRIPT.read_text().replace('if __name__ == "__main__":\n    main()', ""), str(SCRIPT), "exec"), script.__dict__)

PACKAGED = {
    "KokkosCore_config.h": "#define KOKKOS_ENABLE_OPENMP\n/* #undef KOKKOS_ENABLE_CUDA */\n/* #undef KOKKOS_ENABLE_CUDA_UVM */\n"
                           "/* #undef KOKKOS_ARCH_HOPPER */\n/* #undef KOKKOS_ARCH_HOPPER90 */\n",
    "KokkosCore_Config_FwdBackend.hpp": "#include <fwd/Kokkos_Fwd_OPENMP.hpp>\n",
    "KokkosCore_Config_DeclareBackend.hpp": "#include <decl/Kokkos_Declare_OPENMP.hpp>\n",
    "KokkosCore_Config_SetupBackend.hpp": "#ifndef KOKKOS_SETUP_HPP_\n#define KOKKOS_SETUP_HPP_\n#endif\n",
    "desul/atomics/Config.hpp": "/* #undef DESUL_ATOMICS_ENABLE_CUDA */\n",
    "Cuda/Kokkos_Cuda.hpp": "",
}
WANTED = {
    "KokkosCore_config.h": "#define KOKKOS_ENABLE_SERIAL\n#define KOKKOS_ENABLE_CUDA\n/* #undef KOKKOS_ENABLE_CUDA_UVM */\n"
                           "#define KOKKOS_ARCH_HOPPER\n#define KOKKOS_ARCH_HOPPER90\n",
    "KokkosCore_Config_FwdBackend.hpp": "#include <fwd/Kokkos_Fwd_SERIAL.hpp>\n#include <fwd/Kokkos_Fwd_CUDA.hpp>\n",
    "KokkosCore_Config_DeclareBackend.hpp": "#include <decl/Kokkos_Declare_SERIAL.hpp>\n#include <decl/Kokkos_Declare_CUDA.hpp>\n",
    "KokkosCore_Config_SetupBackend.hpp": "#ifndef KOKKOS_SETUP_HPP_\n#define KOKKOS_SETUP_HPP_\n"
                                          "#include <setup/Kokkos_Setup_Cuda.hpp>\n#endif\n",
    "desul/atomics/Config.hpp": "#define DESUL_ATOMICS_ENABLE_CUDA\n",
    "Cuda/Kokkos_Cuda.hpp": "",
}


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: found {found!r}, but it must be {wanted!r}")


def settings_of(files):
    """The files after the script has chosen backends, or its sentence."""
    with tempfile.TemporaryDirectory() as name:
        include = pathlib.Path(name)
        for path, text in files.items():
            (include / path).parent.mkdir(parents=True, exist_ok=True)
            (include / path).write_text(text)
        try:
            script.choose_backends(include)
        except script.Unavailable as reason:
            return str(reason)
        return {path: (include / path).read_text() for path in files}


expect("the package", settings_of(PACKAGED), WANTED)
expect("another form", settings_of(PACKAGED | {"desul/atomics/Config.hpp": "#define SOMETHING\n"}),
       "desul/atomics/Config.hpp of the package does not have the form that is known")
expect("no Cuda", settings_of({path: text for path, text in PACKAGED.items() if not path.startswith("Cuda")}),
       "the package has no headers of the Cuda backend")
expect("a missing file", settings_of({path: text for path, text in PACKAGED.items() if "Setup" not in path}),
       "the package has no KokkosCore_Config_SetupBackend.hpp")
